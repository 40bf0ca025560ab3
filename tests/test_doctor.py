"""`richobs doctor`: what it finds with everything there, with everything missing, and where PyTorch does not answer."""

import json
import sqlite3
from importlib import metadata

import numpy as np
import pytest
from packaging.requirements import Requirement

import richobs
from richobs.cli import doctor, main

REQUIRES = ["numpy>=2.1", "ray>=2.40; extra == 'ray'", "richobs-nothing[fast]>=1; extra == 'fast'"]
REQUIRES += ["numpy>=999; extra == 'future'", "richobs[ray]; extra == 'dev'", "tomli; python_version < '3'"]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def no_torch(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)


@pytest.fixture
def described(monkeypatch):
    """A package with the requirements above; only NumPy is installed."""

    def version(name):
        if name in ("numpy", "richobs"):
            return np.__version__
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", lambda name: REQUIRES if name == "richobs" else [])
    monkeypatch.setattr(metadata, "version", version)
    told = metadata.metadata("packaging")
    del told["Provides-Extra"]
    for name in ("ray", "fast", "future", "dev"):
        told["Provides-Extra"] = name
    monkeypatch.setattr(metadata, "metadata", lambda name: told)


def asked(capsys, *args, status=0):
    assert main(["doctor", *args]) == status
    return capsys.readouterr().out


def test_versions_machine_and_runs(capsys, tmp_path, no_torch):
    assert main(["learn", "bandit", "--quiet", "--out", "runs/one"]) == 0
    capsys.readouterr()
    printed = asked(capsys)
    lines = [line.split() for line in printed.splitlines()]
    assert ["SQLite", sqlite3.sqlite_version] in lines
    assert ["numpy", np.__version__] in lines
    assert any(line[:2] == ["richobs", f"{richobs.__version__},"] for line in lines)
    assert lines[-1] == ["runs", f"{tmp_path / 'runs'}:", "1", "run"]
    assert "PyTorch is not installed: pip install 'richobs[gpu]'" in printed


def test_json_holds_the_same(capsys, tmp_path, no_torch, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    printed = asked(capsys, "elsewhere", "--json")
    found = json.loads(printed)
    assert found["richobs"]["version"] == richobs.__version__
    assert found["packages"]["numpy"] == {"version": np.__version__, "problem": None}
    assert found["browser"] is None
    assert found["runs"] == {"folder": str(tmp_path / "elsewhere"), "there": False, "count": 0, "problem": None}
    assert found["temporary"]["free_bytes"] > 0


def test_extras_are_installed_or_say_how_to_install_them(capsys, described, no_torch):
    extras = asked(capsys).partition("extras\n")[2].partition("machine\n")[0]
    assert [" ".join(line.split()) for line in extras.splitlines()] == [
        "dev missing pip install 'richobs[dev]' (ray is not installed)",
        "fast missing pip install 'richobs[fast]' (richobs-nothing is not installed)",
        f"future missing pip install 'richobs[future]' (numpy {np.__version__} is installed, >=999 is needed)",
        "ray missing pip install 'richobs[ray]' (ray is not installed)",
    ]


def test_what_is_always_needed_and_too_old_is_a_problem(capsys, described, no_torch, monkeypatch):
    monkeypatch.setattr(metadata, "requires", lambda name: ["numpy>=999"] if name == "richobs" else [])
    printed = asked(capsys, status=1)
    assert f"problem numpy {np.__version__} is installed, >=999 is needed" in " ".join(printed.split())


def test_it_works_where_richobs_was_not_installed(capsys, monkeypatch, no_torch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    for name in ("requires", "version", "metadata"):
        monkeypatch.setattr(metadata, name, missing)
    monkeypatch.setattr("tempfile.gettempdir", lambda: "nowhere")
    printed = asked(capsys)
    assert "not known: richobs is imported from a folder" in printed
    assert "nowhere" in printed.partition("temporary space")[2]


def test_requirements_of_this_python_alone_count(described):
    assert [str(each) for each in doctor.requirements("richobs")] == ["numpy>=2.1"]
    assert doctor.problem_of(Requirement("richobs[ray]")) == "ray is not installed"
    assert doctor.problem_of(Requirement("richobs")) is None


@pytest.mark.parametrize(
    ("torch", "found"),
    [
        (
            "class cuda:\n"
            "    is_available = lambda: True\n"
            "    device_count = lambda: 1\n"
            "    get_device_name = lambda i: 'Abacus'\n"
            "    get_device_properties = lambda i: type('P', (), {'total_memory': 3 * 2**30})\n"
            "__version__ = '9.9'\n",
            "GPU cuda:0 is Abacus with 3 GiB (PyTorch 9.9)",
        ),
        ("class cuda:\n    is_available = lambda: False\n__version__ = '9.9'\n", "GPU PyTorch 9.9 finds none"),
        ("raise OSError('libcuda is broken')\n", "GPU PyTorch cannot be asked: OSError: libcuda is broken"),
        ("while True:\n    pass\n", "GPU PyTorch did not say within 0.5 seconds which GPUs there are"),
    ],
)
def test_pytorch_is_asked_in_a_process_that_may_take_its_time(capsys, tmp_path, monkeypatch, torch, found):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "torch.py").write_text(torch)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "elsewhere"))
    if "while" in torch:
        monkeypatch.setattr(doctor, "devices", lambda ask=doctor.devices: ask(patience=0.5))
    printed = asked(capsys)
    assert found in [" ".join(line.split()) for line in printed.splitlines()]


def test_the_home_folder_is_not_told(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path / "home" / "ada"))
    assert doctor._without_home(tmp_path / "home" / "ada" / "runs") == "~/runs"
    assert doctor._without_home(tmp_path / "runs") == str(tmp_path / "runs")
