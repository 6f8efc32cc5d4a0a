"""Masking secrets in the end of a runner's log.

A log tail is kept for weeks and shown to people who may read how a job ended, but not its credentials.
GitHub masks what it knows in its own logs; nothing else masks a dying runner's console. A word masked
in vain costs a word of evidence; a secret that is not masked costs a credential. So the patterns are
broad. They prevent accidents: a job that wants to publish its secrets can encode them.

The job chooses the text, so every pattern takes linear time: repetitions are bounded, or possessive, or
begin where a run of their characters begins.
"""

from __future__ import annotations

import re
from typing import Final

MASK: Final = "***"

#: Tokens that are known by their form: a part that all of a kind have, and the whole. A kind whose part
#: does not occur is not searched for, which is ten times as quick for an ordinary log.
_TOKENS: Final = tuple(
    (part, re.compile(pattern))
    for part, pattern in (
        # GitHub: personal, OAuth, user, server (installations') and refresh tokens.
        ("gh", r"gh[pousr]_[A-Za-z0-9_]{8,}+"),
        ("github_pat_", r"github_pat_[A-Za-z0-9_]{8,}+"),
        # Sentry's contains one of the next kind.
        ("sntrys_", r"sntrys_[A-Za-z0-9+/=_]{20,}+"),
        # A JIT is base64 of JSON, and so are the parts of a JWT: both begin with `{"`.
        ("eyJ", r"eyJ[A-Za-z0-9_+/=.-]{24,}+"),
        # A key or a certificate, encoded once more.
        ("LS0tLS1", r"LS0tLS1[A-Za-z0-9+/=]{8,}+"),
        # GitLab, Slack, npm, PyPI, Docker, Hugging Face, Shopify, Grafana, Databricks.
        ("gl", r"gl(?:pat|ptt|dt|rt|cbt|soat|ft|imt|agent)-[A-Za-z0-9_.-]{16,}+"),
        ("xox", r"xox[a-z]-[A-Za-z0-9-]{10,}+"),
        ("xapp-", r"xapp-[A-Za-z0-9-]{10,}+"),
        ("npm_", r"npm_[A-Za-z0-9]{30,}+"),
        ("pypi-", r"pypi-[A-Za-z0-9_-]{16,}+"),
        ("dckr_", r"dckr_(?:pat|oat)_[A-Za-z0-9_-]{16,}+"),
        ("hf_", r"hf_[A-Za-z0-9]{30,}+"),
        ("shp", r"shp(?:at|ca|pa|ss)_[A-Fa-f0-9]{32}"),
        ("glsa_", r"glsa_[A-Za-z0-9_]{32,}+"),
        ("dapi", r"dapi[a-f0-9]{32}"),
        # Amazon, Google, Azure, DigitalOcean, Vault, age.
        ("IA", r"\b(?:AKIA|ASIA|ABIA)[A-Z0-9]{16}\b"),
        ("AIza", r"AIza[A-Za-z0-9_-]{30,}+"),
        ("GOCSPX-", r"GOCSPX-[A-Za-z0-9_-]{20,}+"),
        ("ya29.", r"ya29\.[A-Za-z0-9_-]{20,}+"),
        ("8Q~", r"[A-Za-z0-9_~.]{3}8Q~[A-Za-z0-9_~.-]{30,}+"),
        ("_v1_", r"do[opr]_v1_[a-f0-9]{32,}+"),
        ("hv", r"hv[bsr]\.[A-Za-z0-9_-]{20,}+"),
        ("AGE-SECRET-KEY-", r"AGE-SECRET-KEY-1[A-Z0-9]{40,}+"),
        # Stripe, SendGrid, Anthropic, OpenAI, Slack's addresses.
        ("k_", r"[prs]k_(?:live|test)_[A-Za-z0-9]{10,}+"),
        ("whsec_", r"whsec_[A-Za-z0-9]{20,}+"),
        ("SG.", r"SG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{16,}+"),
        ("sk-", r"\bsk-[A-Za-z0-9]{40,}+"),
        # Telegram, Atlassian, RubyGems, Linear, NVIDIA, Doppler, Postman.
        (":AA", r"(?<![0-9])[0-9]{8,10}:AA[A-Za-z0-9_-]{33}"),
        ("ATATT3", r"ATATT3[A-Za-z0-9_=-]{20,}+"),
        ("rubygems_", r"rubygems_[a-f0-9]{40,}+"),
        ("lin_api_", r"lin_api_[A-Za-z0-9]{32,}+"),
        ("nvapi-", r"nvapi-[A-Za-z0-9_-]{20,}+"),
        ("dp.", r"\bdp\.(?:ct|pt|sa|st)\.[A-Za-z0-9._-]{30,}+"),
        ("PMAK-", r"PMAK-[a-f0-9]{24}-[a-f0-9]{34}"),
        ("sk-", r"sk-(?:ant|proj|svcacct|admin|or)-[A-Za-z0-9_-]{16,}+"),
        (
            "hooks.slack.com",
            r"(?<=hooks\.slack\.com/(?:services|triggers)/)[A-Za-z0-9/_-]{16,}+",
        ),
        ("hooks.slack.com", r"(?<=hooks\.slack\.com/workflows/)[A-Za-z0-9/_-]{16,}+"),
        # HCP Terraform, Pulumi, Artifactory (two), Tailscale, New Relic, PlanetScale, Supabase.
        (".atlasv1.", r"\b[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{30,}+"),
        ("pul-", r"\bpul-[a-f0-9]{40}"),
        ("AKCp", r"\bAKCp[A-Za-z0-9]{60,}+"),
        ("cmVmdGtu", r"\bcmVmdGtu[A-Za-z0-9]{40,}+"),
        ("tskey-", r"tskey-[a-z]{2,12}-[A-Za-z0-9-]{16,}+"),
        ("NRAK-", r"NRAK-[A-Z0-9]{27}"),
        ("pscale_", r"pscale_(?:tkn|pw|oauth)_[A-Za-z0-9_.=-]{32,}+"),
        ("sb", r"\bsb(?:p_[a-f0-9]{40}|_secret_[A-Za-z0-9_-]{20,}+)"),
        # Groq, xAI, Replicate, Figma, Notion, Square.
        ("gsk_", r"\bgsk_[A-Za-z0-9]{40,}+"),
        ("xai-", r"\bxai-[A-Za-z0-9]{60,}+"),
        ("r8_", r"\br8_[A-Za-z0-9]{36,}+"),
        ("figd_", r"\bfigd_[A-Za-z0-9_-]{20,}+"),
        ("ntn_", r"\bntn_[A-Za-z0-9]{40,}+"),
        ("sq0", r"\bsq0(?:atp|csp)-[A-Za-z0-9_-]{22,}+"),
        # Registration and removal tokens of runners: 29 characters of base 32.
        ("A", r"(?<![A-Za-z0-9_])A[A-Z2-7]{28}(?![A-Za-z0-9_])"),
    )
)
#: Anything long enough to be a key or a part of a JIT that was cut.
_LONG: Final = re.compile(r"(?<![A-Za-z0-9+/=_-])[A-Za-z0-9+/_-]{120,}+={0,2}")
_DIGEST: Final = re.compile(r"[0-9a-fA-F]{128}")

#: The part of a name which says that a secret follows.
_KEYWORD: Final = (
    r"(?i:passw(?:or)?d|passphrase|passcode|(?<![a-z])pwd|secret|token|credential|"
    # `DB_PASS`, `-storepass`, `GH_PAT`. Bare only before `=`: tests print `PASS: x`.
    r"(?<=[a-z0-9][_.-])pass(?![a-z])|(?:key|store)pass(?![a-z])|(?<![\w.-])pass(?==)|"
    r"(?<=[a-z0-9][_.-])pat(?![a-z])|(?<![\w.-])pat(?==)|"
    r"(?:api|access|account|app|application|auth|client|consumer|deploy|encryption|hmac|license|master|"
    r"private|service|shared|signing|ssh|storage|subscription|write)[_ -]?key|"
    r"(?<![a-z])auth(?![a-z_])|"
    r"(?<![a-z])(?:j|php)?sess(?:ion)?[_-]?id(?![a-z]))"
)
#: What may follow it within a name: `_ACCESS_KEY`, `Value`, `2`, `s`.
_REST: Final = r"(?:[_.-][A-Za-z0-9]{1,24}|[A-Z][a-z0-9]{1,24}|[0-9]{1,4}|[sS](?![A-Za-z])){0,5}+"
#: Names with these endings are of a property of a secret, not of the secret.
_ABOUT: Final = re.compile(
    r"(?i:"
    r"algorithm|arn|audience|bucket|count|dir|enabled|endpoint|env|expiration|expires|expiry|"
    r"field|file|header|host|index|issuer|length|limit|limits|manager|max|min|name|namespace|"
    r"path|policy|port|prefix|provider|ref|region|required|scope|scopes|size|sock|store|ttl|"
    r"type|uri|url|user|username|version"
    r")"
)
#: Values that are no secrets. The types come from compilers' messages.
_NO_VALUE: Final = re.compile(
    r"(?i:"
    r"any|bool|boolean|bytes|empty|error|expected|expired|failed|false|inherit|int|invalid|is|"
    r"mismatch|missing|must|nil|no|none|not|null|number|object|optional|required|str|string|"
    r"true|undefined|unexpected|unset|unknown|was|yes"
    r")"
)
#: `${{ secrets.X }}`, `$(pass x)`, `$X`
_REFERENCE: Final = re.compile(r"\$[({A-Z_]")
_QUOTED: Final = r"\"(?:[^\"\\\n]|\\.){1,4096}+|'(?:[^'\\\n]|\\.){1,4096}+"
#: Until a space, or the next of several settings.
_WORD: Final = r"(?:(?![&;,][\"']?[A-Za-z_][\w.-]{0,64}[\"']?[=:]|</)[^\s\"'\\]|\\(?!\"))++"
#: JSON within JSON, once or more often.
_ESCAPED: Final = r'\\{1,7}"(?:(?!\\{1,7}")[^\n]){1,4096}+'
#: `b` and `u` as Python writes them before a quote.
_VALUE: Final = rf"(?:{_ESCAPED}|[\[({{]?[bBuUrR]{{0,2}}(?:{_QUOTED})|{_WORD})"

#: `name=value`, `"name": "value"`, `name => value`, `<name>value`.
_SETTING: Final = re.compile(
    rf"(?P<name>{_KEYWORD}{_REST})"
    r"(?P<between>[\\\"'\]]{0,8}[ \t]{0,8}(?:=>|:=|==?|:(?![:/]))[ \t]{0,8}|>)"
    rf"(?P<value>{_VALUE})"
)
_OPENING: Final = re.compile(r"[\[({]?(?:\\{1,7}\"|[bBuUrR]{0,2}[\"'])|")
#: `name%3Dvalue` in an address; `&quot;name&quot;:&quot;value` in XML; `name\u003dvalue` as some
#: programs write JSON.
_CODED_QUOTE: Final = r"(?:%2[27]|&quot;|&#3[49];|\\u002[27])"
_CODED_SPACE: Final = r"(?:%20|\+| ){0,2}"
_CODED: Final = re.compile(
    rf"(?P<name>{_KEYWORD}{_REST})"
    rf"(?P<between>(?:{_CODED_QUOTE}?{_CODED_SPACE}(?:%3[AaDd]|&#61;|\\u003[dD])"
    rf"|{_CODED_QUOTE}{_CODED_SPACE}[:=]){_CODED_SPACE}{_CODED_QUOTE}?)"
    rf"(?P<value>(?:(?!{_CODED_QUOTE}|%26|&amp;|\\u0026|%0[AaDd])[^\s\"'&<])++)"
)
#: A variable as `env` shows it: its value has the rest of the line.
_VARIABLE: Final = re.compile(
    r"^(?P<between>[ \t]{0,16}(?:export |declare -x |set )?(?P<name>[A-Z][A-Z0-9_]{0,80})=)"
    rf"(?P<value>{_QUOTED}|[^\n]++)"
)
#: `--name value`, also as a list of arguments: `'--name', 'value'`.
_OPTION: Final = re.compile(
    r"(?<![\w-])(?P<between>--?(?P<name>[A-Za-z][A-Za-z0-9_-]{0,48})(?:=|[\"']?,?[ \t]{1,4}))"
    rf"(?P<value>(?!-){_VALUE})"
)
#: A name and its value side by side, as Kubernetes and XML write them.
_PAIR: Final = re.compile(
    r"(?i)(?P<between>(?:\b(?:name|key)[\"']?[ \t]{0,4}[:=][ \t]{0,4}[\"']?|<)"
    r"(?P<name>[a-z0-9_.-]{1,80})"
    rf"[\"']?,?\s{{1,40}}[\"']?value[\"']?[ \t]{{0,4}}[:=][ \t]{{0,4}})(?P<value>{_VALUE})"
)
#: `ENV NAME value` of a Dockerfile; `setx` and `setenv` of shells; `npm config set`.
_SPACED: Final = re.compile(
    r"(?P<between>(?:\bENV|(?i:\bsetx|\bsetenv|\bconfig(?:ure)?[ \t]{1,4}set))[ \t]{1,4}"
    r"(?P<name>[A-Za-z/@][A-Za-z0-9_./:@-]{0,120})[ \t]{1,4})"
    rf"(?P<value>{_VALUE})"
)
_BLOCK_HEADER: Final = re.compile(r"[|>][+-]?[0-9]?")
#: A block of YAML: the lines that are indented further belong to the value.
_BLOCK: Final = re.compile(
    r"(?m)^(?P<between>(?P<indent>[ ]{0,60})(?:- )?[\"']?(?P<name>[A-Za-z0-9_.-]{1,80})[\"']?:[ ]{1,4}"
    r"[|>][+-]?[0-9]?[ ]{0,4}\n)(?P<value>(?:(?P=indent)[ ]{1,40}[^\s][^\n]*+(?:\n|\Z))++)"
)
_NAME: Final = re.compile(rf"({_KEYWORD}|(?i:(?<![a-z])pa(?:ss|t)))({_REST})$|(?i:jit-?config)$")

#: A secret by what stands before it; only the secret is matched by the second group.
_AFTER: Final = tuple(
    re.compile(pattern)
    for pattern in (
        r"(?i)(\bauthorization[\"']?\s{0,4}[:=][\s\"']{0,4}(?:[a-z0-9-]{3,20}\s{1,4})?)([^\s\"',;]++)",
        r"(?i)(\b(?:set-)?cookie:[ \t]{0,4})([^\n]++)",
        r"(?i)(\b(?:set-)?cookie[\"']:[ \t]{0,4}[\"'])([^\"'\n]++)",
        r"(?i)(\bx-(?:api|auth)-(?:key|token):[ \t]{0,4})([^\s\"']++)",
        r"(?i)(\b(?:bearer|basic|remoteauth)[ \t]{1,4})([a-z0-9+/_=.~-]{16,}+)",
        r"(?i)(\b(?:token|password|secret)[ \t]{1,4})((?=[a-z_-]{0,64}[0-9])[a-z0-9+/_=.~-]{16,}+)",
        r"(?i)(\blogin [^\s]{1,80} password )(\S++)",
        r"(?i)(\b(?:identified by|password)(?: for [^\s=]{1,80} ?=)?(?: {1,4}|\()')([^'\n]++)",
        r"(?i)(\bidentified by {1,4}\")([^\"\n]++)",
        r"(?i)(\b(?:password|passphrase|secret|token) is:[ \t]{1,4})([^\s]++)",
        r"(\b(?:requirepass|masterauth)[ \t]{1,4})([^\s]++)",
        r"(\b(?:mysql|mariadb)[a-z-]{0,12}[ \t][^\n]{0,200}?(?<=[ \t])-p)([^\s]++)",
        r"(\b(?:redis-cli|ldap[a-z]{1,10}|unzip|zip)\b[^\n]{0,200}?[ \t]-[awP][ \t]{1,2})([^\s-]\S*+)",
        r"(?i)((?:-pass(?:in|out)?|-k)[ \t=]{1,2}pass:)(\S++)",
        r"(?i)(\bjdbc:oracle:[a-z]{1,8}:[^/\s@]{1,64}/)([^@\s]{1,256}+)(?=@)",
        r"(\b(?:login|sshpass)\b[^\n]{0,200}?[ \t]-p[ \t]{0,2})([^\s-]\S*+)",
        r"((?<!\S)(?:-u|--user)[ =]?[\"']?[^\s:\"']{1,64}:)(?![0-9]{1,9}(?!\S))([^\s\"']++)",
        r"(?i)(\bconvertto-securestring[ \t]{1,4}(?:-string[ \t]{1,4})?[\"']?)([^\s\"'$(-][^\s\"']*+)",
        r"(\bhtpasswd[ \t]{1,4}-[a-zA-Z]{0,8}b[a-zA-Z]{0,8}[ \t]{1,4}\S{1,200}[ \t]{1,4})([^\n]++)",
        r"(\b[a-z_][a-z0-9_-]{0,31}:)([^\s\"']{1,256}+)(?=[\"']?[ \t]{0,4}\|(?: sudo)? ?chpasswd)",
        r"(/api/webhooks/[0-9]{1,24}/)([A-Za-z0-9_-]{20,}+)",
        r"(::add-mask::)([^\n]++)",
        r"(?i)([?&;](?:[a-z-]{0,16})sig(?:nature)?=)([^\s&\"']++)",
    )
)
#: Every line in which the patterns above find something contains one of these.
_HINTS: Final = (
    *("passw", "passphrase", "passcode", "pwd", "secret", "token", "credential", "key", "auth"),
    *(
        "jit",
        "bearer",
        "basic",
        "cookie",
        "identified",
        "login",
        "sshpass",
        "-u",
        "mysql",
        "mariadb",
        "redis-cli",
        "ldap",
        "zip",
        "pass",
        "pat",
        "jdbc",
        "-mask",
        "sig",
    ),
    *("webhooks", "sess", "securestring"),
)
#: The user's part of an address: all before its last @; for HTTP also a token without a password.
_PASSWORD_IN_URL: Final = re.compile(r"(://[^/\s:@\"']{0,256}:)[^/\s\"']{1,4096}(?=@)")
#: `user:password@tcp(host:port)/database`, as Go's MySQL driver takes it.
_PASSWORD_IN_DSN: Final = re.compile(
    r"(?:(?<=[\s\"'=])|^)([\w.-]{1,64}:)[^\s\"']{1,256}(?=@(?:tcp|unix)\()"
)
_TOKEN_IN_URL: Final = re.compile(r"(?i)(\bhttps?://)[^/\s:@\"']{8,1024}(?=@|:(?:x-oauth-basic)?@)")

_KEY_EDGE: Final = re.compile(r"-----(BEGIN|END) [A-Z0-9 ]{1,60}-----")
_KEY_IN_LINE: Final = re.compile(r"(-----BEGIN [A-Z0-9 ]{1,60}-----)(?:(?!-----END)[^\n])++")
_KEY_CUT_IN_LINE: Final = re.compile(r"(?<![A-Za-z0-9+/=\\])[A-Za-z0-9+/=\\]++(?=-----END )")
_KEY_LINE: Final = re.compile(
    r"=?[A-Za-z0-9+/]*+={0,2}|(?:Proc-Type|DEK-Info|Version|Comment|Hash|Charset): [^\n]*+"
)
#: A whole line of a key: as OpenSSL, OpenSSH and MIME break them.
_WHOLE_KEY_LINE: Final = re.compile(
    r"(?<!\S)(?:[A-Za-z0-9+/]{76}|[A-Za-z0-9+/]{70}|[A-Za-z0-9+/]{64})$"
)


def mask(text: str) -> str:
    text = _BLOCK.sub(_without_block, _mask_keys(text))
    text = "\n".join(map(_mask_line, text.split("\n")))
    text = _PAIR.sub(_without_value, text)
    for part, pattern in _TOKENS:
        if part in text:
            text = pattern.sub(MASK, text)
    return _LONG.sub(lambda found: found[0] if _is_harmless(found[0]) else MASK, text)


def _mask_line(line: str) -> str:
    if "@" in line:
        line = _TOKEN_IN_URL.sub(rf"\g<1>{MASK}", line)
        line = _PASSWORD_IN_URL.sub(rf"\g<1>{MASK}", line)
        line = _PASSWORD_IN_DSN.sub(rf"\g<1>{MASK}", line)
    lower = line.lower()
    if not any(hint in lower for hint in _HINTS):
        return line
    for pattern in _AFTER:
        line = pattern.sub(rf"\g<1>{MASK}", line)
    for pattern in (_VARIABLE, _SPACED, _SETTING, _CODED, _OPTION):
        line = pattern.sub(_without_value, line)
    return line


def _without_value(found: re.Match[str]) -> str:
    value = found["value"]
    quote = _OPENING.match(value)[0]  # type: ignore[index] # it matches the empty text too
    if not _is_secret(found["name"], value.removeprefix(quote)):
        return found[0]
    # A closing quote is beyond what was matched.
    return found[0][: -len(value)] + quote + MASK


def _without_block(found: re.Match[str]) -> str:
    if not _is_secret(found["name"], found["value"].strip()):
        return found[0]
    end = "\n" if found["value"].endswith("\n") else ""
    return f"{found['between']}{found['indent']}  {MASK}{end}"


def _is_secret(name: str, value: str) -> bool:
    found = _NAME.search(name)
    if found is None:
        return False
    keyword, rest = (
        (found[1] or "").lower(),
        re.findall("[A-Z]?[a-z0-9]+|[A-Z0-9]+", found[2] or ""),
    )
    if rest and _ABOUT.fullmatch(rest[-1]):
        return False
    word = value.strip(".,;:()[]{}!?\"'")
    if _NO_VALUE.fullmatch(word) or _REFERENCE.match(value) or _BLOCK_HEADER.fullmatch(value):
        return False
    match keyword:
        case "token":
            return re.fullmatch(r"[0-9.,%]{1,9}|[^A-Za-z0-9]{1,8}", value) is None
        case "auth" | "credential":
            return len(value) >= 8
        case "pwd":
            return not value.startswith("/")
        case "pass" | "pat":
            return re.fullmatch(r"[0-9.,%/]{1,9}", value) is None
        case _ if keyword.endswith("key"):
            return re.fullmatch(r"(?:~|\.{0,2})/[\w./-]++", value) is None
        case _:
            return True


def _is_harmless(run: str) -> bool:
    """A digest, or a path: a name among every forty characters, and few digits. Encoded text has few
    slashes, and what is random has more digits."""
    digits = sum(map(run.count, "0123456789"))
    is_path = digits * 20 < len(run) < run.count("/") * 40
    return is_path or _DIGEST.fullmatch(run) is not None


def _mask_keys(text: str) -> str:
    """Keys and certificates, also where a tail begins or ends within one: then its lines are known by
    their length."""
    lines = text.split("\n")
    #: By line number: the column from which on the line belongs to a key.
    masked: dict[int, int] = {}
    column: int | None = None
    for number, line in enumerate(lines):
        if (edge := _KEY_EDGE.search(line)) is not None:
            if column is None and edge[1] == "END":
                _mask_upwards(lines, number, edge.start(), masked)
            column = edge.start() if edge[1] == "BEGIN" and "-----END " not in line else None
        elif (whole := _WHOLE_KEY_LINE.search(line.rstrip("\r"))) is not None and _is_mixed(
            whole[0]
        ):
            column = whole.start()
            if number == 1:
                _mask_upwards(lines, number, column, masked)
            masked[number] = column
        elif column is not None and _is_of_a_key(line, column):
            masked[number] = column
        else:
            column = None
    for number, start in masked.items():
        lines[number] = lines[number][:start] + MASK
    text = _KEY_IN_LINE.sub(rf"\g<1>{MASK}", "\n".join(lines))
    return _KEY_CUT_IN_LINE.sub(MASK, text)


def _mask_upwards(lines: list[str], number: int, column: int, masked: dict[int, int]) -> None:
    while number and number - 1 not in masked and _is_of_a_key(lines[number - 1], column):
        number -= 1
        masked[number] = column


def _is_of_a_key(line: str, column: int) -> bool:
    return _KEY_LINE.fullmatch(line[column:].rstrip("\r")) is not None


def _is_mixed(run: str) -> bool:
    return all(re.search(kind, run) for kind in ("[a-z]", "[A-Z]", "[0-9]"))
