-- Who paddock works for: hosts, Apps, accounts, installations, repositories, and what they may use.
-- oldest program: 0.1.0

CREATE TABLE hosts (
    id       smallint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name     text NOT NULL UNIQUE CHECK (name = lower(name) AND name <> ''),
    api_url  text NOT NULL
);
COMMENT ON TABLE hosts IS 'GitHub hosts: github.com and Enterprise servers. Every GitHub id is keyed by one (I71).';

CREATE TABLE apps (
    id         integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    host_id    smallint NOT NULL REFERENCES hosts,
    github_id  bigint NOT NULL,
    slug       text,
    -- How many JITs each of its installations may mint: within any sixty seconds; at once; and each second after that
    -- (the bucket of an hour, paddock.domain.accounts). NULL is "no limit" (an Enterprise host).
    mints_per_minute  integer CHECK (mints_per_minute >= 0),
    mint_burst        double precision CHECK (mint_burst > 0),
    mint_refill_per_s double precision CHECK (mint_refill_per_s > 0),
    CHECK ((mint_burst IS NULL) = (mint_refill_per_s IS NULL)),
    UNIQUE (host_id, github_id)
);
COMMENT ON TABLE apps IS 'GitHub Apps. Their keys and secrets are settings and never stored here.';

CREATE TYPE installation_state AS ENUM ('active', 'suspended', 'removed');

CREATE TABLE accounts (
    id          integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    host_id     smallint NOT NULL REFERENCES hosts,
    github_id   bigint NOT NULL,
    login       text NOT NULL,
    kind        text NOT NULL CHECK (kind IN ('organization', 'user')),
    weight      integer NOT NULL DEFAULT 1 CHECK (weight BETWEEN 1 AND 1000),
    -- NULL is "no limit"; zero is zero (I54).
    max_runners     integer CHECK (max_runners >= 0),
    max_vcpu_milli  bigint  CHECK (max_vcpu_milli >= 0),
    max_memory_mib  bigint  CHECK (max_memory_mib >= 0),
    paused_at   timestamptz,
    paused_by   text,
    created_at  timestamptz NOT NULL,
    UNIQUE (host_id, github_id),
    CHECK ((paused_at IS NULL) = (paused_by IS NULL))
);
COMMENT ON TABLE accounts IS 'Tenants: the organisations and users an App is installed for.';

CREATE TABLE installations (
    host_id     smallint NOT NULL,
    github_id   bigint NOT NULL,
    app_id      integer NOT NULL REFERENCES apps,
    account_id  integer NOT NULL REFERENCES accounts,
    state       installation_state NOT NULL,
    all_repositories  boolean NOT NULL,
    -- When GitHub first said so: a read that finds nothing new writes nothing (I84).
    read_at     timestamptz NOT NULL,
    PRIMARY KEY (host_id, github_id)
);
COMMENT ON TABLE installations IS 'An App installed for an account. The tenant of an event is found by its installation id (I4).';
-- An account is served through one installation per App.
CREATE UNIQUE INDEX installations_of_account ON installations (account_id, app_id) WHERE state <> 'removed';

CREATE TABLE repositories (
    id          integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    host_id     smallint NOT NULL REFERENCES hosts,
    github_id   bigint NOT NULL,
    account_id  integer NOT NULL REFERENCES accounts,
    full_name   text NOT NULL CHECK (full_name LIKE '%/%'),
    accessible  boolean NOT NULL DEFAULT true,
    max_runners     integer CHECK (max_runners >= 0),
    max_vcpu_milli  bigint  CHECK (max_vcpu_milli >= 0),
    max_memory_mib  bigint  CHECK (max_memory_mib >= 0),
    -- Whether it has limits of its own: see `registration`.
    limited     boolean NOT NULL GENERATED ALWAYS AS
                (num_nonnulls(max_runners, max_vcpu_milli, max_memory_mib) > 0) STORED,
    active_at   timestamptz,
    UNIQUE (host_id, github_id)
);
CREATE INDEX repositories_of_account ON repositories (account_id, id);
CREATE INDEX repositories_limited ON repositories (account_id) WHERE limited;
CREATE INDEX repositories_active ON repositories (active_at) WHERE active_at IS NOT NULL;
