"""helpers.suite and helpers.runs: what runs, what is skipped, and what is kept when things go wrong."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest
from made_up import notebook

from helpers import _abreast, runs, suite

RECORDS = 'from helpers.suite import build_folder, record\nrecord("00_good", "limit", limit, published=4, unit="items")'
LOOKS = """
import os, sys
record("00_good", "python", sys.executable)
record("00_good", "profile", profile)
record("00_good", "settings", " ".join(os.environ[n] for n in ("ATTATTR_HEADLESS", "HF_HUB_OFFLINE", "PYTHONHASHSEED")))
record("00_good", "start-up file", globals().get("from_startup", "not read"))
record("00_good", "folder", os.path.basename(os.getcwd()))
(build_folder("figures") / "00_good.svg").write_text("<svg/>")
"""
FIGURE = 'import plotly.graph_objects as go\ngo.Figure(go.Scatter(y=[1, 3, 2]), layout={"title": {"text": "a line"}})'


def run(folder, *options):
    return suite.main(["run", "--notebooks", str(folder), *options])


def results(build):
    return json.loads((build / "results.json").read_text(encoding="utf-8"))


# ---- with real kernels -----------------------------------------------------------------------------------------------


def settled(job):
    """The inputs of a run, but for the files that someone may be editing while the tests run."""
    return {**runs.inputs(job), "helpers": "", "bundled data": ""}


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """Three notebooks, the second of which fails, run once beside a broken kernel and start-up file of the user's."""
    root = tmp_path_factory.mktemp("a folder")
    folder, build, home = root / "notebooks", root / "build", root / "home"
    notebook(folder, "00_good", RECORDS, LOOKS, FIGURE)
    notebook(folder, "01_bad", "x = 1\ny = x / 0", "never = 1")
    notebook(folder, "02_after", "profile")
    for file, content in {
        home / "kernels/python3/kernel.json": json.dumps(
            {"argv": ["false"], "display_name": "x", "language": "python"}
        ),
        home / "profile_default/startup/00.py": "from_startup = 'read'",
    }.items():
        file.parent.mkdir(parents=True)
        file.write_text(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATTATTR_BUILD", str(build))
        patch.setenv("JUPYTER_PATH", str(home))
        patch.setenv("IPYTHONDIR", str(home))
        patch.delenv("HF_HUB_OFFLINE")
        patch.setattr(suite, "inputs", settled)
        status = run(folder, "--profile", "quick", "-p", "limit=5")
        assert "HF_HUB_OFFLINE" not in os.environ and os.environ["IPYTHONDIR"] == str(home)
    return folder, build, status


def test_one_failure_does_not_stop_the_others(real):
    _, build, status = real
    assert status == 1
    kept = sorted(path.name for path in (build / "notebooks").iterdir())
    assert kept == ["00_good.ipynb", "01_bad.failed.ipynb", "02_after.ipynb"]
    assert sorted(path.stem for path in (build / "state").iterdir()) == ["00_good", "02_after"]


def test_kernels_are_this_python_with_nothing_of_the_users(real):
    found = {name: entry["value"] for name, entry in results(real[1])["results"]["00_good"].items()}
    assert os.path.samefile(os.path.dirname(found["python"]), os.path.dirname(sys.executable))
    assert found["settings"] == "1 1 0"
    assert found["start-up file"] == "not read"
    assert found["folder"] == "notebooks"


def test_results_name_parameters_machine_and_published_values(real):
    found = results(real[1])
    assert found["results"]["00_good"]["limit"] == {"value": 5, "published": 4, "unit": "items", "note": ""}
    assert set(found["results"]) == {"00_good", "02_after"}
    ran = found["runs"]["00_good"]
    assert ran["parameters"] == {"profile": "quick", "limit": 5, "rate": 0.5}
    assert ran["seconds"] > 0 and ran["machine"]["packages"]["torch"] and ran["machine"]["cpus"] >= 1


def test_gallery_shows_runs_and_failures_without_other_hosts(real):
    gallery = real[1] / "gallery"
    assert {path.name for path in gallery.glob("*.html")} == {
        "index.html",
        "results.html",
        "00_good.html",
        "02_after.html",
    }
    index = (gallery / "index.html").read_text(encoding="utf-8")
    assert "cell 3 of 4, `x = 1`: ZeroDivisionError: division by zero" in index
    page = (gallery / "00_good.html").read_text(encoding="utf-8")
    assert "Plotly.newPlot" in page and "a line" in page and 'src="assets/plotly.min.js"' in page
    assert (gallery / "assets" / "plotly.min.js").stat().st_size > 1e6


def test_a_second_run_repeats_only_what_changed_and_gives_the_same_results(real, monkeypatch, capsys):
    folder, build, _ = real
    before = results(build)["results"]
    monkeypatch.setenv("ATTATTR_BUILD", str(build))
    monkeypatch.setattr(suite, "inputs", settled)
    notebook(folder, "01_bad", "1 + 1")
    assert run(folder, "--profile", "quick", "-p", "limit=5") == 0
    table = capsys.readouterr().out
    assert [line.split()[:2] for line in table.splitlines()[1:4]] == [
        ["00_good", "up"],
        ["01_bad", "done"],
        ["02_after", "up"],
    ]
    assert not (build / "notebooks" / "01_bad.failed.ipynb").exists()
    assert run(folder, "--profile", "quick", "-p", "limit=5", "--only", "00", "--fresh") == 0
    assert results(build)["results"] == {**before, "01_bad": {}}


def test_a_cell_without_end_and_a_kernel_that_dies_are_named(tmp_path, capsys):
    notebook(tmp_path, "00_slow", "import time", "time.sleep(60)")
    notebook(tmp_path, "01_dead", "import os", "os._exit(1)", "2")
    assert run(tmp_path, "--timeout", "1") == 1
    out = capsys.readouterr().out
    assert "00_slow: cell 4 of 4, `time.sleep(60)`: ran for more than 1 s; raise --timeout" in out
    assert "01_dead: cell 4 of 5, `os._exit(1)`: the kernel died" in out


def test_interrupt_keeps_what_is_finished_and_ends_the_kernel(tmp_path, build):
    folder = tmp_path / "notebooks"
    notebook(folder, "00_first", "1")
    tell = f"import os, time, pathlib\npathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(os.getpid()))"
    notebook(folder, "01_long", f"{tell}\ntime.sleep(900)")
    notebook(folder, "02_last", "1")
    command = [sys.executable, "-m", "helpers.suite", "run", "--notebooks", str(folder)]
    process = subprocess.Popen(command, cwd=runs.ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=180)
    assert process.returncode == 130, err
    assert [line.split()[1] for line in out.splitlines()[1:4]] == ["done", "interrupted", "not"]
    assert [path.name for path in (build / "state").iterdir()] == ["00_first.json"]
    assert [path.name for path in (build / "notebooks").iterdir()] == ["00_first.ipynb"]
    assert set(results(build)["results"]) == {"00_first"}
    wait_for(lambda: not Path(f"/proc/{(tmp_path / 'pid').read_text()}").exists())
    assert "Traceback" not in err


def test_side_by_side_gives_the_same_results_whatever_fails(real, tmp_path, monkeypatch, capsys):
    folder, build, _ = real
    monkeypatch.setenv("ATTATTR_BUILD", str(tmp_path / "abreast"))
    notebook(folder, "01_bad", "x = 1\ny = x / 0", "never = 1")
    notebook(folder, "03_dead", "import os, signal", "os.kill(os.getppid(), signal.SIGKILL)")
    assert run(folder, "--profile", "quick", "-p", "limit=5", "--jobs", "2") == 1
    out = capsys.readouterr().out
    assert [line.split()[1] for line in out.splitlines()[1:5]] == ["done", "failed", "done", "failed"]
    assert "01_bad: cell 3 of 4, `x = 1`: ZeroDivisionError: division by zero" in out
    assert "03_dead: its process ended with status -9" in out
    (folder / "03_dead.ipynb").unlink()
    assert results(tmp_path / "abreast")["results"]["00_good"] == results(build)["results"]["00_good"]


def test_side_by_side_an_interrupt_ends_all_kernels_and_keeps_what_is_finished(tmp_path, build):
    folder = tmp_path / "notebooks"
    notebook(folder, "00_first", "1")
    for name in ("01_long", "02_long"):
        tell = f"import os, time, pathlib\npathlib.Path({str(tmp_path / name)!r}).write_text(str(os.getpid()))"
        notebook(folder, name, f"{tell}\ntime.sleep(900)")
    notebook(folder, "03_last", "1")
    command = [sys.executable, "-m", "helpers.suite", "run", "--notebooks", str(folder), "--jobs", "2"]
    process = subprocess.Popen(command, cwd=runs.ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    pids = [tmp_path / "01_long", tmp_path / "02_long"]
    wait_for(lambda: all(path.exists() and path.read_text() for path in pids))
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=180)
    assert process.returncode == 130, err
    assert [line.split()[1] for line in out.splitlines()[1:5]] == ["done", "interrupted", "interrupted", "not"]
    assert set(results(build)["results"]) == {"00_first"}
    wait_for(lambda: not any(Path(f"/proc/{path.read_text()}").exists() for path in pids))
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "processors, memory, expected", [(1, 64, 1), (2, 24, 2), (2, 7, 1), (8, 64, 4), (3, 16, 2), (64, 9, 2)]
)
def test_how_many_run_side_by_side(processors, memory, expected):
    assert _abreast.how_many(processors, memory) == expected


def wait_for(condition, seconds=180):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


# ---- with a stand-in for papermill -----------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "notebooks"
    for name in ("00_a", "01_b", "02_c"):
        notebook(folder, name, "1 + 1")
    return folder


@pytest.fixture
def small_root(tmp_path, monkeypatch):
    """A stand-in for the repository, so that a test may change helpers and data."""
    for name in ("helpers/attention.py", "helpers/gallery.py", "data/corpora/dev.tsv"):
        path = tmp_path / "repo" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("first")
    monkeypatch.setattr(runs, "ROOT", tmp_path / "repo")
    return tmp_path / "repo"


@pytest.fixture
def calls(monkeypatch, small_root):
    """Names and parameters of the notebooks that were run; ``calls.hook`` is called in the midst of a run."""

    class Calls(list):
        hook = staticmethod(lambda name: None)

    calls = Calls()

    def execute(source, target, parameters, **options):
        name = Path(source).stem
        calls.append((name, dict(parameters)))
        shutil.copy(source, target)
        calls.hook(name)

    monkeypatch.setattr("papermill.execute_notebook", execute)
    monkeypatch.setattr(runs, "machine", lambda: {"python": "3"})
    return calls


def names(calls):
    return [name for name, _ in calls]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-p", "limt=3"], "there is no parameter 'limt'"),
        (["-p", "limit=many"], "'limit' of 00_a is int"),
        (["-p", "limit"], "'limit' is no name=value"),
        (["-p", "profile=quick"], "with --profile"),
        (["--profile", "huge"], "there is no profile 'huge'; there are: quick, demo, paper"),
        (["--only", "00", "33"], "there is no notebook '33'"),
        (["--source", "nowhere"], "the source 'nowhere' is no folder"),
        (["--source", "bundled"], "there is no parameter 'source'"),
        (["--timeout", "0"], "--timeout is 0"),
    ],
)
def test_what_cannot_be_done_is_refused_before_any_work(folder, calls, build, capsys, options, message):
    assert run(folder, *options) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ") and message in err and err.count("\n") == 1
    assert not calls and not (build / "notebooks").exists()


def test_a_missing_kernel_is_one_line(folder, calls, capsys, monkeypatch):
    find_spec = suite.importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "ipykernel" else find_spec(name))
    assert run(folder) == 2
    assert "there is no kernel 'python3': install ipykernel with" in capsys.readouterr().err


def test_a_malformed_notebook_is_refused_though_it_was_not_asked_for(folder, calls, capsys):
    (folder / "02_c.ipynb").write_text("{")
    assert run(folder, "--only", "00") == 2
    assert "02_c.ipynb is no notebook" in capsys.readouterr().err and not calls


def test_list_shows_titles_and_defaults(folder, capsys):
    assert run(folder, "--list", "--only", "01") == 0
    out = capsys.readouterr().out
    assert out.startswith("01_b  A made-up notebook\n") and "    limit = 3\n" in out and "00_a" not in out


def test_unchanged_notebooks_are_skipped(folder, calls):
    assert run(folder) == 0
    assert run(folder) == 0
    assert names(calls) == ["00_a", "01_b", "02_c"]
    assert run(folder, "--fresh", "--only", "01") == 0
    assert names(calls)[3:] == ["01_b"]


def test_outputs_stored_in_a_notebook_are_no_change(folder, calls):
    run(folder, "--only", "00")
    path = folder / "00_a.ipynb"
    content = nbformat.read(path, as_version=4)
    content.cells[-1].outputs = [nbformat.v4.new_output("stream", text="2")]
    nbformat.write(content, path)
    run(folder, "--only", "00")
    assert names(calls) == ["00_a"]


def change_notebook(folder, monkeypatch):
    notebook(folder, "00_a", "1 + 2")


def change_helpers(folder, monkeypatch):
    (runs.ROOT / "helpers" / "attention.py").write_text("# changed")


def change_data(folder, monkeypatch):
    (runs.ROOT / "data" / "corpora" / "dev.tsv").write_text("other")


def change_packages(folder, monkeypatch):
    monkeypatch.setattr(runs.platform, "python_version", lambda: "3.99")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (change_notebook, "changed: notebook"),
        (change_helpers, "changed: helpers"),
        (change_data, "changed: bundled data"),
        (change_packages, "changed: packages"),
    ],
)
def test_a_change_of_any_input_runs_it_again(folder, calls, monkeypatch, caplog, change, reason):
    run(folder, "--only", "00")
    change(folder, monkeypatch)
    run(folder, "--only", "00")
    assert names(calls) == ["00_a", "00_a"]
    assert f"00_a runs ({reason})" in caplog.text


def test_a_change_of_the_pages_only_runs_nothing_again(folder, calls, small_root):
    run(folder, "--only", "00")
    (small_root / "helpers" / "gallery.py").write_text("other")
    run(folder, "--only", "00")
    assert names(calls) == ["00_a"]


def test_parameters_and_the_files_of_a_source_are_inputs(tmp_path, calls, caplog):
    data = tmp_path / "real data"
    data.mkdir()
    (data / "dev.tsv").write_text("one")
    nbs = tmp_path / "nbs"
    notebook(nbs, "00_a", "1", parameters='profile = "demo"\nsource = "bundled"\n')
    notebook(nbs, "01_b", "1")
    assert run(nbs, "--source", str(data)) == 0
    assert calls == [
        ("00_a", {"profile": "demo", "source": os.path.relpath(data, nbs)}),
        ("01_b", {"profile": "demo"}),
    ]
    (data / "dev.tsv").write_text("two")
    run(nbs, "--source", str(data))
    run(nbs, "--source", "bundled", "--profile", "quick")
    assert names(calls)[2:] == ["00_a", "00_a", "01_b"]
    assert "changed: source data" in caplog.text and "changed: parameters, source data" in caplog.text


def cut_state(build):
    path = build / "state" / "00_a.json"
    path.write_text(path.read_text()[:100])


def other_state(build):
    path = build / "state" / "00_a.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 0}))


def cut_notebook(build):
    path = build / "notebooks" / "00_a.ipynb"
    path.write_text(path.read_text()[:-10])


def no_notebook(build):
    (build / "notebooks" / "00_a.ipynb").unlink()


@pytest.mark.parametrize("damage", [cut_state, other_state, cut_notebook, no_notebook])
def test_a_damaged_record_is_recognised_and_rebuilt(folder, calls, build, caplog, damage):
    run(folder)
    damage(build)
    assert run(folder) == 0
    assert names(calls)[3:] == ["00_a"]
    assert "the record of its last run can't be read" in caplog.text
    run(folder)
    assert len(calls) == 4


def test_a_figure_that_was_removed_runs_its_notebook_again(folder, calls, build, caplog):
    calls.hook = lambda name: (suite.build_folder("figures") / f"{name}.svg").write_text(name)
    run(folder)
    (build / "figures" / "01_b.svg").unlink()
    run(folder)
    assert names(calls)[3:] == ["01_b"] and "missing: figures/01_b.svg" in caplog.text


def test_a_name_that_is_no_longer_recorded_disappears(folder, calls, build):
    calls.hook = lambda name: suite.record(name, "old", 1)
    run(folder, "--only", "00")
    calls.hook = lambda name: suite.record(name, "new", 2)
    run(folder, "--only", "00", "--fresh")
    assert set(results(build)["results"]["00_a"]) == {"new"}


def test_results_of_a_run_by_hand_do_not_mix_in(folder, calls, build):
    calls.hook = lambda name: suite.record(name, "n", 1)
    run(folder)
    suite.record("00_a", "n", 99)
    run(folder)
    assert results(build)["results"]["00_a"]["n"]["value"] == 1


def test_a_notebook_that_fails_loses_its_earlier_run_but_no_other(folder, calls, build):
    run(folder)

    def fail(name):
        raise RuntimeError("out of luck\nand more")

    calls.hook = fail
    assert run(folder, "--only", "01", "--fresh") == 1
    assert set(results(build)["results"]) == {"00_a", "02_c"}
    index = (build / "gallery" / "index.html").read_text()
    assert "RuntimeError: out of luck and more" in index and not (build / "gallery" / "01_b.html").exists()


def test_interrupted_before_the_end_the_earlier_run_still_counts(folder, calls, build, capsys):
    run(folder)

    def interrupt(name):
        if name == "01_b":
            raise KeyboardInterrupt

    calls.hook = interrupt
    assert run(folder, "--fresh") == 130
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()[-6:-3]] == ["done", "interrupted", "not"]
    assert not list((build / "notebooks").glob("*.partial.ipynb"))
    calls.hook = lambda name: None
    assert run(folder) == 0
    assert names(calls)[5:] == []


@pytest.mark.parametrize(("online", "expected"), [(False, "1"), (True, None)])
def test_kernels_are_offline_unless_asked(build, monkeypatch, online, expected):
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    with pytest.raises(RuntimeError), runs.kernel_environment(build, online=online):
        assert os.environ.get("HF_HUB_OFFLINE") == expected
        assert os.environ["PLOTLY_RENDERER"] == "plotly_mimetype"
        raise RuntimeError
    assert "HF_HUB_OFFLINE" not in os.environ and "PLOTLY_RENDERER" not in os.environ
