"""A small share of `python -m attack.files`: damaged and forged files are refused, or change nothing that is claimed."""

import json
import sys
import time

import numpy as np
import pytest
from attack import hostile
from attack.damage import Case, altered_fields, altered_rows, damaged_bytes, database_changed, fitted, sampled
from attack.files import attempts
from attack.isolation import Changed, Kind, attempted, is_supported
from attack.table import PAGE, table, with_table
from attack.victims import build

import richobs
from richobs.cli import main
from richobs.core.errors import InvalidFile
from richobs.core.events import from_plain, to_plain
from richobs.runs.store import CERTIFICATE
from richobs_lab.lsvee.dfs import ConsensusTested

pytestmark = pytest.mark.skipif(not is_supported(), reason="attempts take forks, RLIMIT_AS and /proc")
CLAIM = "It loses at most 0.3 to the best policy"


@pytest.fixture(scope="module")
def victims(tmp_path_factory):
    return {victim.name: victim for victim in build(tmp_path_factory.mktemp("victims"))}


def bad(cases, victims, place):
    """Returns what must not happen and did."""
    return [
        (case.about, name, attempt.kind.value, attempt.said)
        for case in cases
        for name, attempt in attempts(case, victims[case.victim], place)
        if not attempt.kind.is_good
    ]


class TestShares:
    def test_of_damaged_bytes(self, victims, tmp_path):
        cases = damaged_bytes(list(victims.values()), np.random.default_rng(1), 6)
        assert len(cases) == 6
        assert bad(cases, victims, tmp_path) == []

    def test_of_altered_fields_and_rows(self, victims, tmp_path):
        rng = np.random.default_rng(2)
        cases = altered_fields(list(victims.values()), rng, 4) + altered_rows(list(victims.values()), rng, 2)
        assert len(cases) == 6
        assert bad(cases, victims, tmp_path) == []

    def test_of_hostile_files(self, victims, tmp_path):
        heavy = ("bomb", "MB", "00,000", "computed", "takes long", "5,000,000", "endless", "20,000", "without an end")
        cases = [c for c in hostile.cases(list(victims.values())) if len(c.actions) < 5]
        cases = [c for c in cases if not any(word in c.about for word in heavy)]
        assert len(cases) > 200
        assert bad(sampled(np.random.default_rng(3), cases, 4), victims, tmp_path) == []


def test_one_forged_folder_is_one_line_among_the_others(victims, tmp_path, capsys):
    """Digests and links fit, and a part that the page reads is of another type; test_certificate.py lists such parts."""
    good, files = tmp_path / "good", dict(victims["betting"].files)
    good.mkdir()
    victims["betting"].lay_out(good, files)
    content = json.loads(files[CERTIFICATE])
    content["result"]["remarks"] = [1]
    forged = victims["betting"].lay_out(tmp_path, fitted({**files, CERTIFICATE: json.dumps(content).encode()}))
    page = tmp_path / "page.html"
    assert main(["report", str(tmp_path), "--no-figures", "--out", str(page)]) == 0
    said = capsys.readouterr()
    assert f"left out {forged}: {forged / CERTIFICATE} is damaged: " in said.err
    assert "loses at most 0.3 to the best policy" in page.read_text()
    assert [file.name for file in tmp_path.iterdir() if file.suffix in (".png", ".svg")] == []
    assert main(["show", str(tmp_path), "--json"]) == 0
    assert ["error" in run for run in json.loads(capsys.readouterr().out)] == [False, True]
    assert main(["show", str(forged)]) == 2
    assert "is damaged: " in capsys.readouterr().err


class TestKinds:
    """Each end of an attempt is told from the others."""

    def test_good_ends(self):
        def refuse():
            raise InvalidFile("it is damaged")

        assert attempted(lambda: "fine").kind is Kind.UNCHANGED
        assert attempted(refuse)[:2] == (Kind.REFUSED, "InvalidFile: it is damaged")

    def test_bad_ends(self, tmp_path):
        def claims():
            raise Changed("V* is at most 0")

        marker = tmp_path / "mark"
        assert attempted(claims).kind is Kind.CHANGED
        assert attempted(lambda: str(1 // 0)).kind is Kind.TRACEBACK
        assert attempted(lambda: str(len(bytearray(2**31)))).kind is Kind.MEMORY
        assert attempted(lambda: "MemoryError was hidden").kind is Kind.MEMORY
        assert attempted(lambda: str(len(bytearray(2**29))), memory=2**29 + 2**24).kind is Kind.MEMORY
        assert attempted(lambda: str(time.sleep(60)), patience=0.2).kind is Kind.TIME
        assert attempted(lambda: marker.write_text("x") and "", marker=marker).kind is Kind.CODE_RUN


class TestWhatIsNoticed:
    def test_verify_notices_another_claim(self, victims, tmp_path):
        def alter(files):
            text = files[CERTIFICATE].decode()
            assert CLAIM in text
            return {**files, CERTIFICATE: text.replace(CLAIM, CLAIM.replace("0.3", "0.2")).encode()}

        case = Case("fields", "another claim", "betting", alter, ("verify", "show", "report", "resume"))
        assert [a.kind for _, a in attempts(case, victims["betting"], tmp_path)] == [Kind.REFUSED] * 4

    def test_a_reader_that_believes_everything_is_found_out(self, victims, tmp_path, monkeypatch):
        def believe(victim, folder):
            victim.check_claims(json.loads((folder / CERTIFICATE).read_text()), "somebody")
            return ""

        def alter(files):
            return {**files, CERTIFICATE: files[CERTIFICATE].replace(b'"delta": 0.05', b'"delta": 0.01')}

        monkeypatch.setitem(sys.modules["attack.files"].ACTIONS, "show", believe)
        ((_, attempt),) = attempts(Case("fields", "delta", "betting", alter, ("show",)), victims["betting"], tmp_path)
        assert attempt.kind is Kind.CHANGED

    def test_links_made_to_fit_do_not_deceive_verify(self, victims, tmp_path):
        def change(db):
            db.execute(
                "UPDATE pieces SET body = (SELECT body FROM pieces WHERE kind = 'draw' AND k = 0) WHERE kind = 'draw'"
            )

        alter = database_changed(change, relink=True)
        case = Case("rows", "other answers", "betting", alter, ("resume, then verify",), True)
        ((_, attempt),) = attempts(case, victims["betting"], tmp_path)
        assert attempt.kind is Kind.REFUSED

    def test_a_class_that_is_too_large_is_not_evaluated(self, victims):
        content = json.loads(victims["betting"].files[CERTIFICATE])
        huge = richobs.make("lock/3,noise_bits=10000")
        with pytest.raises(richobs.InvalidInput, match=r"more work than the budget of 120,000,000 allows"):
            richobs.verify(richobs.Certificate(content), huge)

    @pytest.mark.parametrize("target", ["/dev/zero", "."])
    def test_archives_that_are_no_files_are_refused(self, target, tmp_path):
        (tmp_path / "policy.npz").symlink_to(target)
        for load in (richobs.LearnedPolicy.load, richobs.Episodes.load):
            with pytest.raises(InvalidFile, match="it is not a file"):
                load(tmp_path / "policy.npz")


class TestEvents:
    EVENT = ConsensusTested(phase="search", path=(0, 1), n=5, agree=True, spread=0.1, eps_test=0.2)

    @pytest.mark.parametrize("value", [None, "x", [], [0.5], {}, True, 10**400])
    @pytest.mark.parametrize("field", ["phase", "path", "n", "spread"])
    def test_fields_of_other_types_are_refused(self, field, value):
        names = ["phase", "path", "n", "log_size_before", "log_size_after"]
        plain = to_plain(self.EVENT)
        place = 1 + names.index(field) if field in names else plain.index(0.1)
        if (field, value) in [("phase", "x"), ("path", [])]:
            return
        with pytest.raises(InvalidFile, match=f"has {field} = "):
            from_plain([*plain[:place], value, *plain[place + 1 :]])


class TestTable:
    def test_the_page_has_the_numbers_of_the_results(self):
        text = PAGE.read_text(encoding="utf-8")
        assert with_table(text, table()) == text, "run `python -m attack.table`"
