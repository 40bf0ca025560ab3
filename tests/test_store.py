"""Runs on disk: killed at any moment they resume to the same bytes; folders of others and broken ones are left alone."""

import contextlib
import dataclasses
import functools
import json
import os
import shutil
import sqlite3
import time
import types
from hashlib import sha256
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

import own
import richobs
from richobs.classes import Callables, Layered, LevelClass, TableLevel
from richobs.core import files as locks
from richobs.core.errors import InvalidFile, InvalidInput, StoreError
from richobs.core.files import fold, held, pack, write_atomically
from richobs.core.ledger import Ledger
from richobs.core.policies import never_takes
from richobs.core.queries import Query
from richobs.core.randomness import keyed_generator
from richobs.core.settings import Settings
from richobs.engines import Calls, StreamEngine
from richobs.engines.probes import Probes, restore_probes
from richobs.learners.betting.candidate import IdleExploration
from richobs.runs import database, store
from richobs.runs.session import run
from richobs.runs.store import LOCK, RunFolder, StoredRun, find_runs, keep_verification
from richobs.worlds.simulator import WorldEnvironment

learn = functools.partial(richobs.learn, learner="certified")  # its draws are of many kinds and sizes

ASKED = {"epsilon": 0.3, "delta": 0.2, "max_episodes": 400}  # of an environment of one's own
CASES = {  # every kind of run: learner, engine, class, environment of one's own
    "betting product": ("lock/5,swap=0.5,fail=0.1", Settings(seed=1)),
    "betting listed": ("frozen-lake,n_maps=12,horizon=16", Settings(seed=1)),
    "betting own environment": ("own", Settings(seed=1)),
    "certified stream": ("lock/4,noise_bits=4", Settings(learner="certified", seed=1)),
    "certified counted": ("lock/4,noise_bits=4", Settings(learner="certified", seed=2, engine="counted")),
    "certified root values": ("disjoint/2", Settings(learner="certified", epsilon=0.3, engine="counted")),
    "paper counted": ("lock/4", Settings(learner="lsvee", epsilon=0.1)),
}


def files_of(folder):
    return {name: (Path(folder) / name).read_bytes() for name in ("certificate.json", "policy.npz")}


@contextlib.contextmanager
def changed_rows(folder):
    """The rows of a run as somebody changes them who knows how they are linked: links are made anew at the end."""
    folder = Path(folder)
    with contextlib.closing(sqlite3.connect(folder / "run.sqlite")) as db, db:
        rows = store._rows(db, folder, json.loads((folder / "config.json").read_text()))
        yield rows
        for kind, last in rows._before.items():
            for row in list(rows.each(kind)):
                last = row.follows(last.link)
                db.execute("UPDATE rows SET link = ? WHERE kind = ? AND k = ?", (last.link, kind, row.k))
            db.execute("INSERT OR REPLACE INTO heads VALUES (?, ?)", (kind, last.link))


def rewritten(folder, kind, place, change):
    """Changes the text of one row, as somebody would who knows how texts are folded and rows are linked."""
    with changed_rows(folder) as rows:
        rows._longest = 10**9
        texts = list(rows.texts(kind))
        texts[place] = change(texts[place])
        for k, (text, before) in enumerate(zip(texts, ["", *texts], strict=False)):
            rows.db.execute("UPDATE rows SET text = ? WHERE kind = ? AND k = ?", (fold(text, before), kind, k))


@pytest.mark.parametrize("case", CASES)
def test_stopped_around_draws_a_run_ends_with_the_same_bytes(case, tmp_path, monkeypatch):
    """Interrupted right before and right after draws are committed, a few times along the run."""
    world, settings = CASES[case]
    problem = own.problem_of(world)
    whole = run(problem, settings, out=tmp_path / "whole")
    total = sum(entry.requests for entry in whole.ledger)
    moments = {0: "before", round(0.3 * total): "after", round(0.6 * total): "before", round(0.99 * total): "after"}
    keep, stops = RunFolder.keep_draw, []

    def interrupted(self, k, request, answer):
        when = moments.pop(k, None)
        if when != "before":
            keep(self, k, request, answer)
        if when is not None:
            stops.append(k)
            raise KeyboardInterrupt

    monkeypatch.setattr(RunFolder, "keep_draw", interrupted)
    while True:
        try:
            run(problem, settings, out=tmp_path / "broken")
            break
        except KeyboardInterrupt:
            continue
    assert len(stops) >= min(total, 3)
    assert files_of(tmp_path / "broken") == files_of(tmp_path / "whole")
    assert whole.episodes == StoredRun.read(tmp_path / "broken").ledger.total


def test_a_stored_run_is_the_run_itself(tmp_path, monkeypatch):
    problem = richobs.make("lock/4")
    plain, stored = learn(problem, seed=5), learn(problem, seed=5, out=tmp_path / "run")
    assert richobs.Certificate.of(plain, problem).to_json() == (tmp_path / "run" / "certificate.json").read_text()
    run = StoredRun.read(tmp_path / "run")
    assert (run.state, run.world, run.settings.seed) == ("finished", "lock/4", 5)
    assert tuple(p.event for p in run.steps) == stored.trace
    assert list(run.ledger) == list(stored.ledger)
    assert run.n_states == 3
    before = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "run").iterdir() if p.suffix in (".json", ".npz")}

    def nothing_is_played(*args):
        raise AssertionError("a finished run plays nothing")

    monkeypatch.setattr(WorldEnvironment, "play", nothing_is_played)
    again = learn(problem, seed=5, out=tmp_path / "run")
    assert again.trace == stored.trace
    after = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "run").iterdir() if p.suffix in (".json", ".npz")}
    assert after == before  # and nothing is written


class Counter:
    """An environment of somebody else's: it plays what a generator says, counts, and may break down."""

    declared = richobs.Declared(at_once=5)
    horizon, n_actions, reward_range = 1, 2, (0.0, 1.0)

    def __init__(self, breaks_after=None):
        self.episodes = 0
        self.breaks_after = breaks_after

    def play(self, policy, n, rng, levels=None):
        if self.breaks_after is not None and self.episodes + n > self.breaks_after:
            raise ConnectionError("the line is dead")
        self.episodes += n
        x = rng.integers(0, 2, n)
        actions = policy.actions(0, x, rng)
        return richobs.Episodes([x], [actions], [np.where(actions == x, 0.8, 0.2)])


FUNCTIONS = Layered([TableLevel([[[0.8, 0.2], [0.2, 0.8]], [[0.2, 0.8], [0.8, 0.2]], [[0.7, 0.7], [0.1, 0.1]]])])


@pytest.mark.parametrize(("learner", "after"), [("betting", 7), ("certified", 33)])
def test_no_episode_of_somebody_elses_environment_is_played_twice(learner, after, tmp_path):
    """Its line goes dead again and again; in all it plays exactly as many episodes as the run reports."""
    whole = Counter()
    expected = learn(whole, FUNCTIONS, **ASKED, learner=learner, out=tmp_path / "whole")
    assert whole.episodes == expected.episodes
    played = 0
    for _ in range(200):
        env = Counter(breaks_after=after)
        try:
            outcome = learn(env, FUNCTIONS, **ASKED, learner=learner, out=tmp_path / "broken")
            played += env.episodes
            break
        except ConnectionError:
            played += env.episodes
    assert played == outcome.episodes == expected.episodes > after
    assert files_of(tmp_path / "broken") == files_of(tmp_path / "whole")


class Notes:
    """The calls of one draw, kept in memory."""

    def __init__(self):
        self.calls = {}

    def call(self, key):
        return self.calls.get(key)

    def keep_call(self, key, answer):
        self.calls[key] = answer


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("UPDATE pieces SET body = CAST(body || x'00' AS BLOB) WHERE kind = 'call'", "call 0 does not match its"),
        ("UPDATE rows SET text = text || '1' WHERE link IN (SELECT link FROM heads)", r"call \d+ does not follow"),
    ],
)
def test_a_call_of_an_interrupted_draw_that_was_changed_is_noticed(tmp_path, change, sentence):
    with pytest.raises(ConnectionError):
        learn(Counter(breaks_after=33), FUNCTIONS, **ASKED, out=tmp_path)
    sql(f"{change} AND kind = 'call'")(tmp_path)
    with pytest.raises(InvalidFile, match=sentence):
        learn(Counter(), FUNCTIONS, **ASKED, out=tmp_path)


def test_real_episodes_of_an_interrupted_draw_are_counted(tmp_path):
    env = Counter()
    env.declared, env.real_episodes = richobs.Declared(deterministic=True), 10
    config = store.describe(richobs.Problem(env, FUNCTIONS), Settings(), 5)
    with RunFolder.opened(tmp_path, config) as folder:
        folder.count_real_episodes(env)
        env.real_episodes = 13
        folder.keep_call("a call", b"answer")
    with RunFolder.opened(tmp_path, config) as folder:
        assert folder.real_episodes() is None
        folder.count_real_episodes(env)
        assert folder.real_episodes() == 3
        env.real_episodes = 17
        folder.keep_draw(0, [[1], 5, "search", "x", 0], b"answer")
        assert folder.real_episodes() == 7
        env.real_episodes = 18
        assert folder.real_episodes() == 8


def test_more_calls_than_a_run_keeps_are_refused_before_they_are_made(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "MOST_CALLS", 3)
    env = Counter()
    with pytest.raises(StoreError, match=r"cannot keep the \d+ calls that one draw needs: a run keeps 3"):
        learn(env, FUNCTIONS, **ASKED, out=tmp_path)
    assert env.episodes == StoredRun.read(tmp_path).ledger.total


def test_a_call_that_could_not_be_read_again_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "MOST_CALLS", 3)
    problem = richobs.Problem(Counter(), FUNCTIONS)
    with RunFolder.opened(tmp_path, store.describe(problem, Settings(), 5)) as folder:
        for call in range(3):
            folder.keep_call(f"call {call}", b"answer")
        with pytest.raises(StoreError, match="cannot keep row 4 "):
            folder.keep_call("one too many", b"answer")
        assert folder.call("call 2") == b"answer"
    assert StoredRun.read(tmp_path).state == "unfinished"


class TestLargeAnswers:
    """They are kept in several rows: what was played is not lost because it is large."""

    python: ClassVar = Callables([lambda level, x: np.array([[0.6, 0.4], [0.3, 0.7]])[np.asarray(x) % 2]], 1, 2)

    @pytest.fixture(autouse=True)
    def _small(self, monkeypatch):
        monkeypatch.setattr(database, "PIECE", 40)

    @pytest.mark.parametrize("functions", [FUNCTIONS, python], ids=["arrays", "python"])
    def test_they_are_read_again(self, tmp_path, functions):
        def owners():
            with contextlib.closing(sqlite3.connect(tmp_path / "run.sqlite")) as db:
                assert db.execute("SELECT max(length(body)) FROM pieces").fetchone()[0] <= 40
                return {kind for (kind,) in db.execute("SELECT kind FROM pieces")}

        whole = learn(Counter(), functions, **ASKED)
        with pytest.raises(ConnectionError):
            learn(Counter(breaks_after=33), functions, **ASKED, out=tmp_path)
        assert "call" in owners()
        played = Counter()
        assert learn(played, functions, **ASKED, out=tmp_path).trace == whole.trace
        assert played.episodes < whole.episodes
        assert owners() == ({"draw"} if functions is FUNCTIONS else {"draw", "probes"})

    @pytest.mark.parametrize(
        ("change", "what"),
        [
            ("UPDATE pieces SET body = zeroblob(length(body)) WHERE kind = 'draw' AND k = 0", "draw"),
            ("DELETE FROM pieces WHERE kind = 'draw' AND k = 0 AND place = 0", "draw"),
            ("DELETE FROM pieces WHERE kind = 'draw'", "draw"),
            ("INSERT INTO pieces VALUES ('draw', 0, 999, x'00')", "draw"),
            ("UPDATE pieces SET body = 'text' WHERE kind = 'draw'", "draw"),
            ("UPDATE pieces SET body = zeroblob(length(body)) WHERE kind = 'probes'", "probes"),
        ],
    )
    def test_they_are_checked(self, tmp_path, change, what):
        learn(Counter(), self.python, **ASKED, out=tmp_path)
        sql(change)(tmp_path)
        with pytest.raises(InvalidFile, match=f"{what} 0 does not match its checksum"):
            learn(Counter(), self.python, **ASKED, out=tmp_path)


@pytest.mark.parametrize("change", [{}, {"workers": 2}, {"max_episodes": 10**6}])
def test_a_finished_run_that_is_looked_at_again_stays_finished(tmp_path, change):
    """Whatever may change is asked for, nothing new is played until it is interrupted, so the certificate stays valid."""
    learn(richobs.make("lock/3"), out=tmp_path)
    before = StoredRun.read(tmp_path)

    def stop(progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        learn(richobs.make("lock/3"), out=tmp_path, callback=stop, **change)
    after = StoredRun.read(tmp_path)
    assert (after.state, after.settings) == ("finished", before.settings)
    assert after.certificate.digest == before.certificate.digest
    learn(richobs.make("lock/3"), out=tmp_path, **change)
    assert StoredRun.read(tmp_path).settings == dataclasses.replace(before.settings, **change)


ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("strangers") / "run"
    learn(richobs.make("lock/3"), out=folder)
    return folder


@pytest.fixture
def folder(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "run")


def contents(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.name != "run.lock"}


USES = {"read": StoredRun.read, "go on": lambda folder: learn(richobs.make("lock/3"), out=folder)}


def refused(folder, sentence, uses=tuple(USES)):
    """Whoever reads the run, or goes on with it, gets a sentence, and nothing is overwritten."""
    before = contents(folder)
    for use in uses:
        with pytest.raises(InvalidFile, match=sentence):
            USES[use](folder)
    assert contents(folder) == before


def file(name, body):
    return lambda folder: (folder / name).write_bytes(body if isinstance(body, bytes) else body.encode())


def config(missing=None, **parts):
    """Puts other values into parts of the configuration, or removes a setting."""

    def change(folder):
        content = json.loads((folder / "config.json").read_text())
        for part, value in parts.items():
            content[part] = {**content[part], **value} if isinstance(value, dict) else value
        content["settings"].pop(missing, None)
        (folder / "config.json").write_text(json.dumps(content))

    return change


def sql(statement):
    def change(folder):
        with contextlib.closing(sqlite3.connect(folder / "run.sqlite")) as db:
            db.executescript(statement)

    return change


def relinked(statement):
    """Changes rows by SQL, and makes their links anew."""

    def change(folder):
        with changed_rows(folder) as rows:
            rows.db.execute(statement)

    return change


def text(kind, change, place=1):
    """Changes the text of a row, and makes all links anew."""
    return lambda folder: rewritten(folder, kind, place, change)


def query(place, value):
    return text("draw", lambda old: json.dumps([value if i == place else v for i, v in enumerate(json.loads(old))]))


def event_path(path):
    def change(old):
        (kind, phase, _, *rest), *after = json.loads(old)
        return json.dumps([[kind, phase, path, *rest], *after])

    return text("event", change)


LAST = "link IN (SELECT link FROM heads WHERE kind = '{}')"
PATHS = {  # that no episode has
    "more than 103,000 bytes": [0] * 200_000,
    "more than the 3 actions": [0] * 4,
    "a path is": [0, 9],
    "a path is .*": [0, -1],
    "a path is|has path": [True],
    "a path has|has path": "00",
}
READ, GO_ON = ("read",), ("go on",)
DAMAGE = [  # what is changed, what is said, and who notices it: everybody, or as given
    *(
        (file("config.json", body), r"config\.json is")
        for body in ("", "{", "[]", "[" * 200_000, '{"format": "richobs-run"}', '{"format": 1}')
    ),
    (config(version=1, made_with={"richobs": "0.1.0"}), r"has format 1, written by richobs 0\.1\.0; richobs .* reads"),
    (config(made_with={"richobs": "0.0.1"}), r"made with richobs 0\.0\.1", GO_ON),
    (config(made_with={"numpy": "0.0.1"}), r"made with numpy 0\.0\.1", GO_ON),
    *((config(environment={"horizon": value}), "its environment is") for value in (10**9, 0, True, 2.0, None)),
    *((config(environment={"n_actions": value}), "its environment is") for value in (10**9, 0, True, 2.0, None)),
    (file("config.json", " " * (2**20 + 1)), "more than 1,048,576 bytes"),
    # settings have defaults, so one that is missing would read as another run's
    *((config(missing=name), "a setting is missing") for name in ("learner", "epsilon", "seed")),
    (config(settings={"delta": 0.5}), "draw 0 does not follow", READ),
    (lambda folder: (folder / "config.json").unlink(), r"run\.sqlite and no config\.json", GO_ON),
    *((file("run.sqlite", body), r"run\.sqlite is damaged") for body in (b"", b"SQLite format 3\0")),
    (lambda f: file("run.sqlite", (f / "run.sqlite").read_bytes()[:100] + bytes(3900))(f), r"run\.sqlite is damaged"),
    # other tables
    (sql(f"CREATE TRIGGER t BEFORE INSERT ON rows BEGIN {ENDLESS}; END"), "it has the trigger 't'"),
    (sql("CREATE TRIGGER t AFTER INSERT ON rows BEGIN DELETE FROM pieces; END"), "it has the trigger 't'"),
    (sql(f"ALTER TABLE rows RENAME TO r; CREATE VIEW rows AS {ENDLESS}"), "it has the table 'r'"),
    (sql("CREATE TABLE more (x)"), "or no database of ours: it has the table 'more'"),
    (sql("CREATE INDEX i ON rows (hex(text))"), "it has the index 'i'"),
    (sql("DROP TABLE heads"), "it has the nothing 'besides', and lacks heads"),
    (sql("ALTER TABLE heads ADD COLUMN c TEXT AS (hex(zeroblob(1000000)))"), "table 'heads', and lacks heads"),
    (sql("DROP TABLE heads; CREATE TABLE heads (kind TEXT PRIMARY KEY, link CHECK (kind > 0))"), "and lacks heads"),
    # rows that were altered, removed, moved or inserted
    (sql("UPDATE rows SET text = CAST(text || ' ' AS BLOB) WHERE kind = 'draw' AND k = 1"), "draw 1 does not follow"),
    (sql("UPDATE rows SET at = at + 1 WHERE kind = 'draw' AND k = 2"), "draw 2 does not follow"),
    (sql("UPDATE rows SET real = 7 WHERE kind = 'draw' AND k = 2"), "draw 2 does not follow"),
    (sql("DELETE FROM rows WHERE kind = 'draw' AND k = 1"), "draw 2 does not follow"),
    (sql("DELETE FROM rows WHERE kind = 'draw'"), "the last rows of kind draw are missing"),
    (
        sql("UPDATE rows SET k = k - 3 WHERE kind = 'draw' AND k IN (1, 2); UPDATE rows SET k = -k WHERE k < 0"),
        "draw 1 does not follow",
    ),
    (
        sql("INSERT INTO rows SELECT kind, k + 1000, text, checksum, real, at, link FROM rows WHERE k = 1"),
        "draw 1001 does not follow",
    ),
    (sql("INSERT INTO rows SELECT 'x', k, text, checksum, real, at, link FROM rows WHERE kind = 'end'"), "of kind 'x'"),
    (sql("UPDATE rows SET text = CAST(text || ' ' AS BLOB) WHERE kind = 'event' AND k = 1"), "event 1 does not follow"),
    (sql("DELETE FROM rows WHERE kind = 'event' AND k = 0"), "event 1 does not follow"),
    (sql("""UPDATE rows SET text = '["finished",""]' WHERE kind = 'end' AND k = 0"""), "end 0 does not follow"),
    *(
        (sql(f"DELETE FROM rows WHERE {LAST.format(kind)}"), f"the last rows of kind {kind} are missing")
        for kind in ("draw", "event", "end")
    ),
    (sql("UPDATE rows SET text = hex(zeroblob(60000)) WHERE kind = 'end'"), "end has 120,000 .* at most 103,000"),
    # rows that fit each other, and make no sense
    (text("draw", lambda _: "x"), "damaged"),
    *((text("event", lambda _, body=body: body), "damaged") for body in ("[1]", "[" * 10**5)),
    *((relinked(f"UPDATE rows SET text = 'text' WHERE kind = '{k}'"), "is damaged") for k in ("draw", "event", "end")),
    *((query(0, path), sentence) for sentence, path in PATHS.items()),
    *((event_path(path), f"{sentence}|damaged") for sentence, path in PATHS.items()),
    *((query(1, n), "a draw asks for") for n in (0, -5, 2.5, True, "many", None)),
    *(
        (text("event", lambda old, bound=bound: f"{old.rpartition(',')[0]},{bound}]"), "a bound is no finite number")
        for bound in ("1e999", "NaN", "true", '"high"', "[]")
    ),
    *((relinked(f"UPDATE rows SET at = {at}"), "draw 0 is of") for at in ("'yesterday'", "9e999", "-1", "x'00'")),
    (relinked("UPDATE rows SET real = 'x'"), "draw 0 is of"),
    (text("draw", lambda _: '[[0], 5, "x", "y", 1, [], []]', 0), "made by other code or on another machine", GO_ON),
    *((query(place, value), "draw 1 of the record was", GO_ON) for place, value in ((0, [3, 3, 3]), (1, 17), (2, "x"))),
    (text("event", lambda old: old.replace(",16,", ",17,"), 0), "decision 0 of the run", GO_ON),
    (sql("UPDATE pieces SET body = CAST(x'00' || body AS BLOB) WHERE kind = 'draw'"), "draw 0 does not match", GO_ON),
    (sql("UPDATE pieces SET body = 'text' WHERE kind = 'draw' AND k = 1"), r"run\.sqlite is damaged: draw 1", GO_ON),
]


@pytest.mark.parametrize("case", DAMAGE, ids=[case[1] for case in DAMAGE])
def test_damage_is_a_sentence_and_nothing_is_overwritten(case, folder):
    change, *said = case
    change(folder)
    refused(folder, *said)


class TestFoldersThatAreLeftAlone:
    @pytest.mark.parametrize(
        ("other", "sentence"),
        [
            ({"env": richobs.make("lock/4")}, r"its environment has \w+ = .*, and"),
            ({"seed": 9}, r"its settings has seed = 0, and 9 is asked for.*--overwrite"),
            ({"epsilon": 0.2}, r"epsilon = 0\.1, and 0\.2"),
            ({"learner": "lsvee"}, r"learner = 'certified'"),
            ({"tuning": {"trials": 8}}, r"tuning = \[\], and \['trials=8'\]"),
            ({"max_episodes": 500}, r"has spent [\d,]+ episodes already, more than the 500 allowed now"),
        ],
    )
    def test_another_configuration(self, folder, other, sentence):
        before = contents(folder)
        with pytest.raises(InvalidInput, match=sentence):
            learn(**{"env": richobs.make("lock/3"), "out": folder, **other})
        assert contents(folder) == before

    @pytest.mark.parametrize("name", ["certificate.json", "policy.npz"])
    def test_a_file_that_was_lost_is_written_again(self, folder, name):
        before = (folder / name).read_bytes()
        for damage in (lambda: (folder / name).unlink(), lambda: (folder / name).write_bytes(b"junk")):
            damage()
            learn(richobs.make("lock/3"), out=folder)
            assert (folder / name).read_bytes() == before
        (folder / "certificate.json").unlink()
        assert StoredRun.read(folder).state == "unfinished"

    def test_folders_that_are_none(self, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(InvalidFile, match="there is no run in"):
            StoredRun.read(tmp_path / "nothing")
        with pytest.raises(StoreError, match="cannot be written"):
            learn(richobs.make("lock/3"), out=tmp_path / "file" / "run")

    def test_a_disk_that_is_full(self, tmp_path, monkeypatch):
        """The database may grow to a few pages only; what fitted stays readable, and the run goes on once there is room."""
        connect = sqlite3.connect

        def small(*args, **kwargs):
            db = connect(*args, **kwargs)
            db.execute("PRAGMA max_page_count = 14")
            return db

        monkeypatch.setattr(sqlite3, "connect", small)
        with pytest.raises(StoreError, match=r"cannot be written \(database or disk is full\)\. What was stored stays"):
            learn(richobs.make("lock/6"), out=tmp_path / "run")
        monkeypatch.setattr(sqlite3, "connect", connect)
        some = StoredRun.read(tmp_path / "run")
        assert some.state == "unfinished"
        assert some.ledger.total > 0
        whole = learn(richobs.make("lock/6"))
        assert learn(richobs.make("lock/6"), out=tmp_path / "run").trace == whole.trace

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
    def test_a_read_only_folder_is_still_readable(self, folder):
        folder.chmod(0o555)
        try:
            assert StoredRun.read(folder).state == "finished"
            with pytest.raises(StoreError, match="cannot be written"):
                learn(richobs.make("lock/3"), out=folder)
        finally:
            folder.chmod(0o755)

    def test_a_database_is_whole_before_it_has_its_name(self, tmp_path, monkeypatch):
        """On a full disk the log cannot be copied into the file when the database is closed, and SQLite does not say so."""
        connect = sqlite3.connect

        def full(*args, **kwargs):
            db = connect(*args, **kwargs)
            db.execute("PRAGMA wal_autocheckpoint = 0")

            def close():  # as it is when closing cannot write: what is in the log stays there
                place = Path(db.execute("PRAGMA database_list").fetchone()[2])
                body = place.read_bytes()
                db.close()
                place.write_bytes(body)

            return types.SimpleNamespace(execute=db.execute, executescript=db.executescript, close=close)

        monkeypatch.setattr(sqlite3, "connect", full)
        database.make_database(tmp_path / "run.sqlite", database.ROWS)
        monkeypatch.undo()
        with database.opened(tmp_path / "run.sqlite", database.ROWS, write=True) as db:
            assert db.execute("SELECT count(*) FROM rows").fetchone() == (0,)

    @pytest.mark.parametrize("clock", [-5e9, -0.5, 1e11 + 1, 9e15])
    def test_a_clock_that_is_wrong_costs_nothing(self, tmp_path, monkeypatch, clock):
        with monkeypatch.context() as wrong:
            wrong.setattr(time, "time", lambda: clock)
            learn(richobs.make("bandit"), out=tmp_path)
            assert StoredRun.read(tmp_path).state == "finished"
        assert StoredRun.read(tmp_path).started == (0.0 if clock < 0 else database.LATEST)
        assert learn(richobs.make("bandit"), out=tmp_path).episodes == StoredRun.read(tmp_path).ledger.total

    def test_a_finished_run_is_finished_whoever_holds_it(self, folder, monkeypatch):
        monkeypatch.setattr(locks, "WAIT", 0.0)
        with held(folder / LOCK):
            found = StoredRun.read(folder)
            assert (found.state, found.certificate is not None) == ("finished", True)
            (folder / "certificate.json").unlink()
            assert StoredRun.read(folder).state == "running"  # a reader is welcome
            for use in (lambda: learn(richobs.make("lock/3"), out=folder), lambda: StoredRun.discard(folder)):
                with pytest.raises(StoreError, match="another process is running in"):
                    use()
        assert StoredRun.read(folder).state == "unfinished"

    def test_discarding_removes_the_run_and_nothing_else(self, folder):
        (folder / "notes.txt").write_text("mine")
        StoredRun.discard(folder)
        assert {p.name for p in folder.iterdir()} == {"notes.txt", "run.lock"}


def test_what_verify_found_belongs_to_the_certificate_it_was_about(tmp_path):
    problem = richobs.make("lock/3")
    outcome = learn(problem, out=tmp_path)
    assert StoredRun.read(tmp_path).verification is None
    checked = richobs.verify(richobs.Certificate.of(outcome, problem), problem)
    keep_verification(tmp_path, checked)
    assert StoredRun.read(tmp_path).verification == checked
    text = (tmp_path / "certificate.json").read_text()
    changed = text.replace("loses at most 0.1 ", "loses at most 0.2 ")
    assert json.loads((tmp_path / "verification.json").read_text())["certificate"] == sha256(text.encode()).hexdigest()
    assert changed != text
    (tmp_path / "certificate.json").write_text(changed)
    with pytest.raises(InvalidFile, match="is not the certificate that the run wrote"):
        StoredRun.read(tmp_path)
    (tmp_path / "certificate.json").write_text(text)
    assert StoredRun.read(tmp_path).verification == checked
    other = {**json.loads((tmp_path / "verification.json").read_text()), "certificate": "0" * 64}
    (tmp_path / "verification.json").write_text(json.dumps(other))
    assert StoredRun.read(tmp_path).verification is None


def test_going_on_is_unfinished_until_it_is_finished(tmp_path):
    problem = richobs.make("lock/5")
    learn(problem, out=tmp_path, max_episodes=1000)

    def tired(progress):
        if progress.episodes > 2000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        learn(problem, out=tmp_path, callback=tired)
    assert StoredRun.read(tmp_path).state == "unfinished"
    assert StoredRun.read(tmp_path).certificate is None


def test_wherever_the_process_goes_the_run_stays(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    learn(richobs.make("lock/3"), out="here", callback=lambda p: os.chdir(tmp_path / "elsewhere"))
    assert StoredRun.read(tmp_path / "here").state == "finished"
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize("stored", [False, True])
def test_answers_that_were_not_asked_for_are_rejected_before_they_count(stored, tmp_path):
    """`test_engines.py` lists what is rejected."""
    env = Counter()
    env.play = lambda *asked: None
    with pytest.raises(richobs.errors.Rejected, match=r"Counter\.play must return richobs\.Episodes; it returned"):
        learn(env, FUNCTIONS, out=tmp_path / "run" if stored else None, max_episodes=400)
    if stored:
        assert StoredRun.read(tmp_path / "run").state == "stopped"
        assert StoredRun.read(tmp_path / "run").ledger.total == 0


class Disobedient(Counter):
    """Plays the best action whatever a policy that looks at the observation says."""

    def play(self, policy, n, rng, levels=None):
        x = rng.integers(0, 2, n)
        asked = policy.actions(0, x, rng)
        acted = asked if len(set(asked.tolist())) == 1 else x
        return richobs.Episodes([x], [acted], [np.where(acted == x, 0.8, 0.2)])


def test_an_environment_that_plays_something_better_is_rejected():
    """Its rollouts would certify a policy by what another one earns: the worse policy is asked for, the best one played."""
    engine = StreamEngine(Calls(Disobedient()), FUNCTIONS, seed=0, ledger=Ledger())
    worse = richobs.LearnedPolicy(FUNCTIONS, (1,))
    with pytest.raises(richobs.errors.Rejected, match=r"took action . at level 0; the policy asks for action . at"):
        engine.ask(Query.rollout(worse, 20, purpose="x"))


@pytest.mark.parametrize("learner", ["betting", "certified"])
def test_an_environment_that_names_other_actions_than_it_was_asked_for_is_rejected(learner):
    """Functions would be compared with what other actions paid."""

    class Mirrored(Counter):
        def play(self, policy, n, rng, levels=None):
            x = rng.integers(0, 2, n)
            acted = policy.actions(0, x, rng)
            return richobs.Episodes([x], [1 - acted], [np.where(acted == x, 0.8, 0.2)])

    with pytest.raises(richobs.errors.Rejected, match=r"took action . at level 0; the policy (never takes|asks for) "):
        learn(Mirrored(), FUNCTIONS, learner=learner)


def test_random_actions_at_worthless_observations_are_not_disobedience():
    policy = IdleExploration(richobs.LearnedPolicy(FUNCTIONS, (0,)), np.array([0.5]), 2)
    x, actions = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    assert policy.never_takes(0, x, actions).tolist() == [False, True, True, False]
    idle = IdleExploration(richobs.LearnedPolicy(FUNCTIONS, (0,)), np.array([0.8]), 2)
    assert not idle.never_takes(0, x, actions).any()
    tied = IdleExploration(richobs.LearnedPolicy(FUNCTIONS, (2,)), np.array([0.0]), 2)
    assert not tied.never_takes(0, x, actions).any()
    switched = richobs.Switch(richobs.Uniform(2), 0, policy)
    assert never_takes(switched, 0, x, actions).tolist() == [False, True, True, False]
    assert not never_takes(richobs.Uniform(2), 0, x, actions).any()


class Reused(Counter):
    """Returns the same array again and again, with new contents."""

    buffer = np.zeros(5, dtype=int)

    def play(self, policy, n, rng, levels=None):
        x = self.buffer[:n]
        x[:] = rng.integers(0, 2, n)
        actions = policy.actions(0, x, rng)
        return richobs.Episodes([x], [actions], [np.where(actions == x, 0.8, 0.2)])


def test_an_environment_may_use_its_arrays_again():
    """What it showed in an earlier call must not change afterwards: rewards still fit observations and actions."""
    played = Calls(Reused()).play(richobs.OpenLoop((1,)), 40, np.random.default_rng(0))
    np.testing.assert_array_equal(played.rewards[0], np.where(played.observations[0] == 1, 0.8, 0.2))


def test_runs_are_found_below_a_folder(tmp_path):
    for name in ("b", "a/c"):
        learn(richobs.make("bandit"), out=tmp_path / name)
    shutil.copytree(tmp_path / "b", tmp_path / "z")
    (tmp_path / "z" / "config.json").write_text("{}")
    (tmp_path / "z" / "run.sqlite").unlink()
    assert find_runs(tmp_path) == [tmp_path / "a" / "c", tmp_path / "b"]


def good(level, x):
    return np.where(np.arange(2) == np.asarray(x)[:, None], 0.8, 0.2)


def bad(level, x):
    return 1.0 - good(level, x)


class OwnLevel(LevelClass):
    """A class of somebody's own: Python code, and no digest."""

    size, n_actions = 2, 2

    def __init__(self, order):
        self.order = order

    def values(self, x, members=None):
        every = np.stack([(good, bad)[i](0, x) for i in self.order])
        return every if members is None else every[members]


def of_code(kind, order):
    if kind == "own":
        return Layered([OwnLevel(order)])
    return Callables([(good, bad)[i] for i in order], 1, 2)


class TestAClassThatIsPythonCode:
    """The same folder, and a class whose functions stand in another order: member 0 was the best, and is the worst now."""

    asked: ClassVar = {"epsilon": 0.3, "delta": 0.2, "max_episodes": 2_000}

    @pytest.mark.parametrize("kind", ["callables", "own"])
    @pytest.mark.parametrize("learner", ["betting", "certified"])
    def test_another_order_is_refused(self, kind, learner, tmp_path):
        first = richobs.learn(Counter(), of_code(kind, [0, 1]), learner=learner, out=tmp_path, **self.asked)
        before = contents(tmp_path)
        for more in ({}, {"max_episodes": 4_000}):
            with pytest.raises(InvalidInput, match="holds a run with another class of functions: at the observations"):
                richobs.learn(Counter(), of_code(kind, [1, 0]), learner=learner, out=tmp_path, **self.asked | more)
        assert contents(tmp_path) == before
        env = Counter()
        again = richobs.learn(env, of_code(kind, [0, 1]), learner=learner, out=tmp_path, **self.asked)
        assert (env.episodes, again.trace) == (0, first.trace)

    def test_so_it_is_where_the_observations_are_known_beforehand(self, tmp_path):
        problem = richobs.make("bandit")
        tables = problem.process.q_tables
        right, wrong = (lambda h, x: tables[h][x]), (lambda h, x: 1 - tables[h][x])
        orders = [Callables(fs, 1, problem.n_actions) for fs in ((right, wrong), (wrong, right))]
        learn(problem, orders[0], out=tmp_path)
        with pytest.raises(InvalidInput, match="its functions has fingerprint = "):
            learn(problem, orders[1], out=tmp_path)
        assert StoredRun.read(tmp_path).state == "finished"

    def test_verify_compares_its_values(self):
        problem = richobs.Problem(Counter(), of_code("callables", [0, 1]))
        certificate = richobs.Certificate.of(learn(problem, **self.asked), problem)
        assert richobs.verify(certificate, problem).agrees
        other = richobs.verify(certificate, Counter(), of_code("callables", [1, 0]))
        assert "values of the class" in [f.what for f in other.findings if not f.agrees]

    def test_calls_that_were_played_for_another_policy_are_refused(self):
        """The draw was interrupted before any probe was stored: the actions themselves tell."""
        notes, functions = Notes(), of_code("callables", [0, 1])
        with pytest.raises(ConnectionError):
            Calls(Counter(breaks_after=12), notes).play(richobs.LearnedPolicy(functions, 0), 20, keyed_generator(3))
        with pytest.raises(InvalidFile, match="a call of the record was played for another policy"):
            Calls(Counter(), notes).play(richobs.LearnedPolicy(functions, 1), 20, keyed_generator(3))


class TestAKilledWriter:
    """What a killed process leaves beside the database: the next one recovers it, whether it reads or writes."""

    @pytest.fixture
    def killed(self, tmp_path):
        """A run is copied while it writes, as a kill would leave it: what is committed is in the log, not yet merged."""

        def copy(progress):
            if progress.episodes > 500 and not (tmp_path / "killed").exists():
                ignored = shutil.ignore_patterns("run.lock*", "*-shm")
                shutil.copytree(tmp_path / "run", tmp_path / "killed", ignore=ignored)

        learn(richobs.make("lock/4"), out=tmp_path / "run", callback=copy)
        return tmp_path / "killed"

    @pytest.mark.parametrize(
        "then",
        [
            lambda folder: None,
            lambda folder: (folder / "run.sqlite").unlink(),  # a log without its database does not count
            lambda folder: (folder / "run.sqlite-shm").write_bytes(bytes(32768)),  # of a former version
        ],
        ids=["killed", "no database", "shared memory"],
    )
    def test_a_log_that_is_not_merged(self, then, killed, tmp_path):
        assert (killed / "run.sqlite-wal").stat().st_size > 0
        then(killed)
        learn(richobs.make("lock/4"), out=killed)
        assert files_of(killed) == files_of(tmp_path / "run")
        assert not list(killed.glob("run.sqlite-*"))

    @pytest.mark.parametrize("mode", ["WAL", "DELETE"])
    def test_who_reads_writes_nothing_and_another_mode_is_not_written(self, mode, killed):
        if mode == "DELETE":
            sql("PRAGMA journal_mode = DELETE")(killed)
        before = contents(killed)
        assert StoredRun.read(killed).state == "unfinished"
        assert StoredRun.read(killed).ledger.total > 0
        assert contents(killed) == before
        if mode == "DELETE":
            with pytest.raises(InvalidFile, match="it is not in WAL mode"):
                learn(richobs.make("lock/4"), out=killed)

    def test_a_copy_needs_room(self, killed, monkeypatch):
        monkeypatch.setattr(shutil, "disk_usage", lambda _: types.SimpleNamespace(free=1000))
        with pytest.raises(StoreError, match=r"has 1,000 bytes of room for [\d,]+\. Set TMPDIR"):
            StoredRun.read(killed)

    def test_what_is_read_while_it_changes_is_read_again(self, tmp_path, monkeypatch):
        learn(richobs.make("bandit"), out=tmp_path)
        whole, read = (tmp_path / "run.sqlite").read_bytes(), store._read_as_reader
        (tmp_path / "run.sqlite").write_bytes(whole[:5000])

        def change(place, config):
            try:
                return read(place, config)
            finally:
                (tmp_path / "run.sqlite").write_bytes(whole)

        monkeypatch.setattr(store, "_read_as_reader", change)
        assert StoredRun.read(tmp_path).state == "finished"

    def test_the_journal_mode_never_changes(self, tmp_path):
        learn(richobs.make("bandit"), out=tmp_path)
        assert (tmp_path / "run.sqlite").read_bytes()[18:20] == b"\x02\x02"  # WAL, by SQLite's file format
        StoredRun.read(tmp_path)
        assert (tmp_path / "run.sqlite").read_bytes()[18:20] == b"\x02\x02"
        assert not list(tmp_path.glob("run.sqlite-*"))

    def test_what_was_half_written_is_swept_and_nothing_else(self, tmp_path):
        learn(richobs.make("bandit"), out=tmp_path)
        kept = {".report.html.mine", ".new-", "report.html.abcd1234", ".notes.txt.abcd1234"}
        for name in (".report.html.abcd1234", ".certificate.json.x_y_z_1_", *kept):
            (tmp_path / name).write_text("half")
        (tmp_path / ".new-abcd1234").mkdir()
        (tmp_path / ".new-abcd1234" / "run.sqlite").write_text("half")
        before = {p.name for p in tmp_path.iterdir()}
        learn(richobs.make("bandit"), out=tmp_path)
        swept = before - {p.name for p in tmp_path.iterdir()}
        assert swept == {".report.html.abcd1234", ".certificate.json.x_y_z_1_", ".new-abcd1234"}

    def test_what_is_being_written_is_not_swept(self, tmp_path):
        """A report does not hold the folder, so a run may start while one is written."""
        with write_atomically(tmp_path / "report.html") as stream:
            stream.write(b"first half, ")
            learn(richobs.make("bandit"), out=tmp_path)
            stream.write(b"second half")
        assert (tmp_path / "report.html").read_bytes() == b"first half, second half"
        assert not list(tmp_path.glob(".report.html.*"))


def test_a_record_names_members_and_policy():
    functions = of_code("callables", [0, 1])
    one, other = (Query.rollout(richobs.LearnedPolicy(functions, i), 5, purpose="x").words for i in (0, 1))
    assert one != other
    one, other = (Query.along((0,), 5, [np.array([i])], purpose="x").words for i in (0, 1))
    assert one != other


def hot_journal(database, to, named):
    """Copies a database with a rollback journal that names a file, which SQLite removes once it has restored the pages."""
    to.mkdir()
    copy = Path(shutil.copy(database, to))
    db = sqlite3.connect(copy, isolation_level=None)
    db.execute("PRAGMA journal_mode = DELETE")
    db.execute("PRAGMA cache_size = 1")
    db.execute("BEGIN IMMEDIATE")
    db.execute("UPDATE pieces SET body = zeroblob(20000)")
    name, magic = os.fsencode(named), b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"
    record = (0x40000000 // 4096 + 1).to_bytes(4, "big") + name + len(name).to_bytes(4, "big")
    whole, journal = copy.read_bytes(), Path(f"{copy}-journal").read_bytes()
    db.execute("ROLLBACK")
    db.close()
    copy.write_bytes(whole)
    Path(f"{copy}-journal").write_bytes(journal + record + sum(name).to_bytes(4, "big") + magic)
    return copy


class TestDatabasesOfStrangers:
    """Nothing in a database is carried out, and what a run's settings do not need is refused before it is used."""

    def test_limits_are_set(self, folder):
        with database.opened(folder / "run.sqlite", database.ROWS, write=True) as db:
            assert db.getlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH) == 10_000
            assert db.getlimit(sqlite3.SQLITE_LIMIT_ATTACHED) == 0
            assert db.execute("PRAGMA trusted_schema").fetchone() == (0,)
            with pytest.raises(sqlite3.DataError, match="too big"):
                db.execute("INSERT INTO heads VALUES ('x', zeroblob(300000000))")

    def test_no_statement_goes_on_for_ever(self, folder, monkeypatch):
        with database.opened(folder / "run.sqlite", database.ROWS) as db:
            monkeypatch.setattr(database, "STEPS", 1_000_000)
            more = pytest.raises(InvalidFile, match="takes more steps than a database of")
            with more, database.bounded(db, folder / "run.sqlite"):
                db.execute(ENDLESS)
        monkeypatch.setattr(database, "STEPS", 0)
        monkeypatch.setattr(database, "STEPS_PER_BYTE", 0)
        monkeypatch.setattr(database, "AT_ONCE", 1)
        with pytest.raises(InvalidFile, match="takes more steps"):
            StoredRun.read(folder)

    @pytest.mark.parametrize("by", ["a journal", "a link", "a lock"])
    def test_a_journal_does_not_remove_the_files_of_others(self, folder, tmp_path, by):
        """A rollback journal may name a second file, and SQLite removes that one after the pages are restored.

        It is looked for beside what a link leads to, and was beside run.lock too, while that was a database.
        """
        precious = tmp_path / "precious"
        precious.write_bytes(b"not a journal")
        database = hot_journal(folder / "run.sqlite", tmp_path / "made", precious)
        victim = folder / ("run.lock" if by == "a lock" else "run.sqlite")
        place = victim
        if by == "a link":
            (folder / "below").mkdir()
            place = folder / "below" / "run.sqlite"
            victim.unlink()
            victim.symlink_to("below/run.sqlite")
        shutil.copyfile(database, place)
        shutil.copyfile(f"{database}-journal", f"{place}-journal")
        if by == "a lock":  # nothing in or beside it is read
            assert StoredRun.read(folder).state == "finished"
            learn(richobs.make("lock/3"), out=folder)
        else:
            for use in USES.values():
                with pytest.raises(InvalidFile, match=r"is not a file of ours|is damaged: it is a link"):
                    use(folder)
        assert precious.read_bytes() == b"not a journal"

    def test_a_file_with_a_second_name_is_read_and_not_written(self, folder, tmp_path):
        os.link(folder / "run.sqlite", tmp_path / "backup.sqlite")
        before = (tmp_path / "backup.sqlite").read_bytes()
        assert StoredRun.read(folder).state == "finished"
        with pytest.raises(StoreError, match="has a second name"):
            learn(richobs.make("lock/3"), out=folder)
        assert (tmp_path / "backup.sqlite").read_bytes() == before

    @pytest.mark.parametrize("name", store.FILES)
    def test_a_link_is_no_file_of_the_run(self, folder, name):
        file = folder / name
        file.touch()
        file.rename(folder / "own")
        file.symlink_to("own")
        refused(folder, "is damaged: it is a link")

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
    @pytest.mark.parametrize(
        "name",
        ["config.json", "run.sqlite", "run.sqlite-journal", "run.lock", ".report.html.abcd1234", ".new-abcd1234"],
    )
    def test_a_pipe_is_no_file(self, folder, name):
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)
        if name.startswith("."):
            learn(richobs.make("lock/3"), out=folder)  # it is left alone
            assert (folder / name).exists()
        else:
            with pytest.raises(InvalidFile, match=r"is damaged.*not a file|is not a file of ours"):
                StoredRun.read(folder)

    def test_more_rows_than_a_run_keeps(self, folder, monkeypatch):
        monkeypatch.setattr(store, "MOST_ROWS", 5)
        refused(folder, "and a run keeps at most 5")

    def test_what_could_not_be_read_again_is_not_written(self, tmp_path, monkeypatch):
        monkeypatch.setattr(database, "LARGEST_ANSWER", 100)
        with pytest.raises(StoreError, match=r"cannot keep row 1 with [\d,]+ bytes and [\d,]+ characters"):
            learn(richobs.make("lock/3"), out=tmp_path)
        assert StoredRun.read(tmp_path).ledger.total == 0

    def test_probes_are_as_many_as_a_run_gathers(self, tmp_path):
        functions = of_code("callables", [0, 1])
        probes = Probes(functions)
        stored = [(0, np.zeros((100_000, 1)), np.zeros((100_000, 0), int))]
        for body in (
            pack([probes.fingerprint([]), [0]], [stored[0][1], stored[0][2]]),
            pack(["x", [7]], [np.zeros((1, 1)), np.zeros((1, 0), int)]),
            pack(["x", ["a"]], [np.zeros((1, 1)), np.zeros((1, 0), int)]),
        ):
            with pytest.raises(InvalidFile, match="stored probes are damaged"):
                restore_probes(probes, 0, body)


@pytest.mark.parametrize("out", ["a\0b", 3, b"bytes", ["a"], 2.5])
def test_a_folder_that_is_no_name(out):
    for use in (*USES.values(), StoredRun.discard):
        with pytest.raises(InvalidInput, match="folder is given as text or a path, in characters that a name can"):
            use(out)


def test_a_callback_that_is_no_function():
    with pytest.raises(InvalidInput, match="callback must be a function that takes a Progress; got 3"):
        learn(richobs.make("bandit"), callback=3)


def test_runs_are_not_looked_for_in_endless_folders(tmp_path, monkeypatch):
    for i in range(4):
        (tmp_path / str(i)).mkdir()
    assert find_runs(tmp_path) == []
    monkeypatch.setattr(store, "MOST_FOLDERS", 3)
    with pytest.raises(InvalidInput, match="more than 3 folders below it"):
        find_runs(tmp_path)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("declared", richobs.Declared(identity="x" * 100_001), "at most 100,000 characters"),
        ("declared", richobs.Declared(identity="half a \ud800 character"), "no half of one .a surrogate."),
        ("n_actions", 1_000_001, "at most 1,000,000 actions, and this problem has 1,000,001. Run without a folder"),
    ],
)
def test_what_could_not_be_read_again_is_refused_before_the_first_episode(name, value, why, tmp_path):
    env = Counter()
    setattr(env, name, value)
    with pytest.raises(richobs.InvalidInput, match=why):
        learn(env, Layered([TableLevel(np.zeros((2, 2, env.n_actions)))]), out=tmp_path / "run")
    assert env.episodes == 0
    assert not (tmp_path / "run").exists()


def test_the_longest_identity_is_read_again(tmp_path):
    env, identity = Counter(), "\N{SNOWMAN}" * 100_000
    env.declared = richobs.Declared(identity=identity)
    learn(env, FUNCTIONS, **ASKED, out=tmp_path)
    assert StoredRun.read(tmp_path).certificate.content["environment"]["identity"] == identity
