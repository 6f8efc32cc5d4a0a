#!/bin/sh
# Makes the image's files below a directory. Run by the Dockerfile and by `python -m tools.image` alike, in a
# checkout, on the Debian release that image.toml names:
#
#   root.sh base DIRECTORY PACKAGE ...    Debian's packages and the locked dependencies
#   root.sh program DIRECTORY             paddock itself
#
# Packages are only unpacked: no script of theirs runs, so nothing of this machine gets into the image.
set -eu

python=${PYTHON:-python3}
modules=usr/lib/python3/dist-packages

base() {
    root=$1
    shift
    debs=$(mktemp -d)
    chmod 755 "$debs"
    (cd "$debs" && apt-get download -qq -o APT::Sandbox::User=root "$@")
    mkdir -p "$root/var/lib/dpkg/status.d"
    for deb in "$debs"/*.deb; do
        dpkg-deb -x "$deb" "$root"
        # Where scanners look for what an image without a package manager is made of.
        dpkg-deb -f "$deb" >"$root/var/lib/dpkg/status.d/$(dpkg-deb -f "$deb" Package)"
    done
    rm -r "$debs"

    # What update-ca-certificates does, and where OpenSSL looks for it.
    mkdir -p "$root/etc/ssl/certs" "$root/usr/lib/ssl"
    find "$root/usr/share/ca-certificates" -name '*.crt' | LC_ALL=C sort | while read -r each; do
        cat "$each"
    done >"$root/etc/ssl/certs/ca-certificates.crt"
    ln -s /etc/ssl/certs/ca-certificates.crt "$root/usr/lib/ssl/cert.pem"
    # Licences stay; manuals and translations do not.
    find "$root/usr/share" ! -type d ! -path "$root/usr/share/doc/*/copyright" -delete
    find "$root/usr/share" -type d -empty -delete

    mkdir -p "$root/$modules"
    $python -m pip install --quiet --disable-pip-version-check --root-user-action ignore --no-deps \
        --no-compile --only-binary :all: --require-hashes --requirement requirements/run.lock --target "$root/$modules"
    rm -r "$root/$modules/bin"
    find "$root/$modules" -type f \( -name '*.c' -o -name '*.h' -o -name '*.px[di]' -o -name '*.pyx' -o -name '*.pyi' \) -delete
    find "$root/$modules" -type f -name '*.so' -exec strip --strip-unneeded {} +

    ln -sf python3.11 "$root/usr/bin/python3"
    compile "$root" /usr/lib/python3.11
    compile "$root" "/$modules"

    mkdir -p "$root/etc" "$root/tmp" "$root/usr/local/bin"
    chmod 1777 "$root/tmp"
    printf 'root:x:0:0::/:/nonexistent\npaddock:x:65532:65532::/tmp:/nonexistent\n' >"$root/etc/passwd"
    printf 'root:x:0:\npaddock:x:65532:\n' >"$root/etc/group"
    printf 'hosts: files dns\n' >"$root/etc/nsswitch.conf"
    # Where `program` puts it: a name that the agent is started by, without searching any other place.
    printf '/opt\n' >"$root/$modules/paddock.pth"
}

program() {
    root=$1
    mkdir -p "$root/opt/paddock" "$root/usr/local/bin"
    (cd src/paddock && find . -type f ! -name '*.pyc' | LC_ALL=C sort) |
        while read -r each; do
            mkdir -p "$root/opt/paddock/$(dirname "$each")"
            cp "src/paddock/$each" "$root/opt/paddock/$each"
        done
    find "$root/opt/paddock" -type f -exec chmod 644 {} +
    compile "$root" /opt/paddock
    printf '#!/usr/bin/python3 -I\nfrom paddock.cli import main\n\nmain()\n' >"$root/usr/local/bin/paddock"
    chmod 755 "$root/usr/local/bin/paddock"
}

# Compiled here, since the image cannot be written to; by content, so that times do not matter.
compile() {
    $python -m compileall -q -j 1 -s "$1" --invalidation-mode unchecked-hash "$1$2" >/dev/null
}

"$@"
