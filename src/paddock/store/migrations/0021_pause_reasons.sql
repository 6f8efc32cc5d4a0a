-- Why an account or a pool is paused. Its event says so too, and is forgotten after 30 days; the pause may last longer.
-- oldest program: 0.1.0

-- A program of before neither writes nor clears it: it means something only while `paused_at` is there.
ALTER TABLE accounts ADD COLUMN paused_why text;
ALTER TABLE pools ADD COLUMN paused_why text;
