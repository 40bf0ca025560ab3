"""Ray: futures that behave as elsewhere, actors that are lost and replaced, and a run on a cluster that loses a node."""

import os
import sys
import threading
import time
import types
from pathlib import Path

import pytest

import own
import richobs
import richobs.ray
from own import FUNCTIONS
from richobs.core.errors import InvalidInput
from richobs.ray import LARGE, RayExecutor, WorkerLost

SMALL = {"object_store_memory": 80 * 2**20}
PATIENCE = 60  # seconds until a test gives up


class Logged(own.Own):
    """Calls are noted in a file. Those of other processes wait while it has more lines than the file `gate` allows."""

    declared = richobs.Declared(at_once=4, identity="a logged walk", replayable=True)

    def __init__(self, log, gate=None):
        self.log, self.gate, self.here = log, gate, os.getpid()

    def play(self, policy, n, rng, levels=None):
        noted(self.log)
        if self.gate is not None:
            time.sleep(0.05)  # meanwhile the other worker finds something to do
        while self.gate is not None and os.getpid() != self.here and lines(self.log) > int(self.gate.read_text()):
            time.sleep(0.02)
        return super().play(policy, n, rng, levels)


def noted(file):
    """Writes a line into a file, and returns the number of lines."""
    with open(file, "a") as stream:
        stream.write(f"{os.getpid()}\n")
    return lines(file)


def noted_and_held(file):
    """As `noted`, but the first call does not return until the file `go` is beside that one."""
    number = noted(file)
    while number == 1 and not (file.parent / "go").exists():
        time.sleep(0.02)
    return number


def lines(file):
    return len(Path(file).read_text().splitlines()) if Path(file).exists() else 0


def wait_until(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def refused(value):
    raise ValueError(f"no {value}")


def size(body):
    return len(body)


@pytest.mark.parametrize(("where", "warned"), [("127.0.0.1", False), ("10.0.0.7", True)])
def test_ray_on_this_machine_listens_at_the_loopback_alone(monkeypatch, caplog, where, warned):
    """A stand-in for Ray notes how it is started; with Ray 2.60 itself all of its sockets were bound to 127.0.0.1 then."""
    name, started = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", []
    ray = types.ModuleType("ray")
    ray._private = types.SimpleNamespace(ray_constants=types.SimpleNamespace(ENABLE_RAY_CLUSTER=True))
    ray.util = types.SimpleNamespace(get_node_ip_address=lambda: where)
    ray.is_initialized, ray.__version__ = (lambda: False), "9"
    constants = ray._private.ray_constants
    ray.init = lambda **given: started.append((given["address"], os.environ[name], constants.ENABLE_RAY_CLUSTER))
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.delenv(name, raising=False)
    assert richobs.ray._connected(None, 2) == (ray, True)
    assert started == [("local", "0", False)]
    assert (name in os.environ, constants.ENABLE_RAY_CLUSTER) == (False, True)
    assert ("other machines can reach it" in caplog.text) is warned


def test_without_ray_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InvalidInput, match=r"pip install 'richobs\[ray\]'"):
        RayExecutor()


@pytest.mark.parametrize("options", [{"actors": 0}, {"max_task_retries": -1}, {"max_restarts": -2}])
def test_impossible_numbers_are_refused(options):
    with pytest.raises(InvalidInput, match="at least"):
        RayExecutor(**options)


@pytest.fixture(scope="module")
def cluster():
    """A cluster on this machine with one node of one CPU; tests add others and remove them."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYTHONPATH", str(Path(__file__).parent))  # workers import this file
        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False, **SMALL})
        yield made
        made.shutdown()


@pytest.fixture
def second(cluster):
    """A second node with one CPU; whatever was added besides is removed at the end."""
    node = cluster.add_node(num_cpus=1, **SMALL)
    yield node
    for left in [n for n in cluster.list_all_nodes() if n is not cluster.head_node]:
        cluster.remove_node(left)


@pytest.mark.parametrize(
    ("address", "said"),
    [("auto", "no Ray cluster at 'auto'"), ("127.0.0.1:1", "no Ray cluster at '127.0.0.1:1'"), ("here", "host:port")],
)
def test_an_address_without_a_cluster_is_refused(address, said, monkeypatch):
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_TMPDIR", "/nonexistent")  # `auto` looks for a cluster of this machine there
    with pytest.raises(InvalidInput, match=said):
        RayExecutor(address)


def test_the_address_of_a_remote_client_is_refused():
    pytest.importorskip("ray")
    with pytest.raises(InvalidInput, match="remote client"):
        RayExecutor("ray://somewhere:10001")


def test_futures_behave_as_those_of_other_executors(cluster, tmp_path, monkeypatch):
    import ray

    stored = []
    monkeypatch.setattr(ray, "put", lambda value, put=ray.put: stored.append(len(value)) or put(value))
    with RayExecutor(cluster.address) as executor:
        assert list(executor.map(abs, [-1, -2, -3])) == [1, 2, 3]
        held, waits = executor.submit(noted_and_held, tmp_path / "a"), executor.submit(noted, tmp_path / "b")
        assert waits.cancel()
        (tmp_path / "go").touch()
        with pytest.raises(ValueError, match="no thanks") as raised:
            executor.submit(refused, "thanks").result()
        assert "on a Ray worker" in str(raised.value.__cause__)
        with pytest.raises(TypeError, match=r"pickle|serializ"):
            executor.submit(size, threading.Lock()).result()
        body = bytes(LARGE)
        assert [executor.submit(size, body).result() for _ in range(3)] == [LARGE] * 3
        assert stored == [LARGE]
        assert held.result() == 1
    assert lines(tmp_path / "b") == 0
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(abs, 1)


def test_an_error_in_the_block_ends_calls_in_progress(cluster, tmp_path):
    executor = RayExecutor(cluster.address)
    running, waiting = executor.submit(noted_and_held, tmp_path / "a"), executor.submit(noted, tmp_path / "b")

    def interrupted():
        with executor:
            wait_until(lambda: lines(tmp_path / "a") == 1)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with pytest.raises(WorkerLost, match="ended in the middle"):
        running.result()
    assert waiting.cancelled()


def test_a_lost_call_is_made_again_unless_it_may_be_made_only_once(cluster, second, tmp_path):
    with RayExecutor(cluster.address) as executor:
        both = [(executor.submit, "again"), (executor.submit_once, "once")]
        files = [tmp_path / name for _, name in both]
        calls = [submit(noted_and_held, tmp_path / name) for submit, name in both]
        wait_until(lambda: all(lines(file) == 1 for file in files))
        for file in files:
            os.kill(int(file.read_text()), 9)
        assert calls[0].result(PATIENCE) == 2
        with pytest.raises(WorkerLost, match="only once"):
            calls[1].result(PATIENCE)
    assert [lines(file) for file in files] == [2, 1]


def test_a_call_that_always_kills_its_worker_fails_in_the_end(cluster, tmp_path):
    with RayExecutor(cluster.address, max_task_retries=1) as executor:
        call = executor.submit(os._exit, 9)
        with pytest.raises(WorkerLost, match="made 2 times"):
            call.result(PATIENCE)
        assert executor.submit(abs, -5).result(PATIENCE) == 5  # Ray has started the actor again


def test_other_versions_on_the_cluster_are_refused(cluster, monkeypatch):
    monkeypatch.setattr("richobs.ray._versions", lambda: ("0.0.0", "3.0", "1.0"))
    with RayExecutor(cluster.address) as executor:
        with pytest.raises(WorkerLost, match=r"this process richobs 0\.0\.0, Python 3\.0 and NumPy 1\.0"):
            executor.submit(abs, 1).result(PATIENCE)
        with pytest.raises(WorkerLost, match="same versions"):
            executor.submit(abs, 1)


def test_a_run_on_a_cluster_that_loses_a_node_and_gains_another_gives_the_same_bytes(cluster, second, tmp_path):
    """Calls wait for what happens to the cluster, so that a slow machine changes nothing."""
    asked = {"epsilon": 0.05, "delta": 0.2, "max_episodes": 400, "progress": False}
    here, there = tmp_path / "here", tmp_path / "there"
    alone = richobs.learn(Logged(tmp_path / "one.log"), FUNCTIONS, out=here, **asked)
    log, gate, found = tmp_path / "many.log", tmp_path / "gate", []

    def let(calls):
        (tmp_path / "new").write_text(str(calls))
        (tmp_path / "new").replace(gate)

    def workers():
        return set(log.read_text().split()) - {str(os.getpid())} if log.exists() else set()

    def ready():
        return sum(actor.ready for actor in executor._actors)

    let(0)
    with RayExecutor(cluster.address) as executor:
        env = Logged(log, gate)
        task = threading.Thread(
            target=lambda: found.append(richobs.learn(env, FUNCTIONS, out=there, workers=executor, **asked))
        )
        task.start()
        wait_until(lambda: len(workers()) == 2)  # each in its first call
        cluster.remove_node(second)
        wait_until(lambda: ready() == 1)
        before = lines(log)
        let(before + 2)
        wait_until(lambda: lines(log) > before)  # the run goes on without the node
        cluster.add_node(num_cpus=1, **SMALL)
        wait_until(lambda: ready() == 2)
        let(10**6)
        task.join()
    assert len(workers()) == 3, "the new node must have played"
    for file in ("certificate.json", "policy.npz"):
        assert (here / file).read_bytes() == (there / file).read_bytes()
    assert list(found[0].ledger) == list(alone.ledger)
    calls = lines(tmp_path / "one.log")
    assert calls < lines(log) <= 1.1 * calls + 8  # a tenth compares workers, and the lost node's call was made again
