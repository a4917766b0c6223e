"""The store's tables, version by version. A new version is a new entry; old ones never change."""

MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE runs (
        id TEXT PRIMARY KEY,
        name TEXT NOT NULL,
        started TEXT NOT NULL,
        finished TEXT NOT NULL DEFAULT '',
        state TEXT NOT NULL,              -- running | done
        owner TEXT NOT NULL DEFAULT '',   -- pid and start time of who runs it
        valid INTEGER NOT NULL DEFAULT 0,
        verdict TEXT NOT NULL DEFAULT 'fail',
        folder TEXT NOT NULL DEFAULT '',
        environment TEXT NOT NULL,        -- JSON
        document BLOB NOT NULL            -- zlib of the result without its repetitions
    );
    CREATE TABLE trials (
        run TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
        number INTEGER NOT NULL,          -- place in the order they were run
        leg TEXT NOT NULL,
        document BLOB NOT NULL,           -- zlib of the repetition, with series and histograms
        PRIMARY KEY (run, number)
    ) WITHOUT ROWID;
    CREATE TABLE metrics (
        run TEXT NOT NULL,
        number INTEGER NOT NULL,
        metric TEXT NOT NULL,
        value REAL NOT NULL,
        PRIMARY KEY (run, number, metric),
        FOREIGN KEY (run, number) REFERENCES trials(run, number) ON DELETE CASCADE
    ) WITHOUT ROWID;
    CREATE TABLE histograms (
        run TEXT NOT NULL,
        number INTEGER NOT NULL,
        grp TEXT NOT NULL,
        delay TEXT NOT NULL,              -- name of the delay, or lateness
        hdr TEXT NOT NULL,
        PRIMARY KEY (run, number, grp, delay),
        FOREIGN KEY (run, number) REFERENCES trials(run, number) ON DELETE CASCADE
    ) WITHOUT ROWID;
    CREATE INDEX runs_started ON runs(started);
    CREATE INDEX metrics_metric ON metrics(metric);
    """,
    """
    ALTER TABLE runs ADD COLUMN kind TEXT NOT NULL DEFAULT 'run';
    ALTER TABLE runs ADD COLUMN finding TEXT NOT NULL DEFAULT '';
    """,
    """
    ALTER TABLE runs ADD COLUMN subject TEXT NOT NULL DEFAULT '';   -- JSON of netdyno.stats.subject
    """,
)
"""Version n of the schema is what the first n entries make."""
