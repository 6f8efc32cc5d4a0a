-- Why a scope backs off, as a value: `reason` is a sentence for people, and no decision is taken by its words.
-- oldest program: 0.1.0

-- A program of before does not write it; its back-offs last for minutes.
ALTER TABLE backoffs ADD COLUMN cause text NOT NULL DEFAULT 'mint failed'
    CHECK (cause IN ('mint failed', 'ended without a job'));
