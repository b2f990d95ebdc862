"""Command lines of spark-submit, and applications that are found or refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.worker.submit.application import (
    Application,
    ApplicationRefusedError,
    allowed_application,
    deployed_application,
)
from broker.worker.submit.words import SubmitPlace, kill_words, submit_words

PLACE = SubmitPlace(home="/spark", master="spark://h:7077", deploy_mode="cluster", properties="/etc/spark.conf")


def test_arguments_that_look_like_options_come_behind_the_file() -> None:
    args = ["--master", "local", "--conf", "spark.driver.extraJavaOptions=-x", "--deploy-mode=client"]
    words = submit_words(
        PLACE,
        Application("/code/sums.jar", "org.example.Sums"),
        name="rsm task 7",
        own_conf={"spark.ui.port": "4711"},
        conf={"spark.sql.adaptive.enabled": True},
        args=args,
    )
    assert words == [
        "/spark/bin/spark-submit", "--master", "spark://h:7077", "--deploy-mode", "cluster", "--name", "rsm task 7",
        "--properties-file", "/etc/spark.conf", "--conf", "spark.sql.adaptive.enabled=true",
        "--conf", "spark.ui.port=4711", "--class", "org.example.Sums", "/code/sums.jar", *args,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("master", "words"),
    [
        (
            "spark://h:7077",
            ["/spark/bin/spark-class", "org.apache.spark.deploy.Client", "kill", "spark://h:7077", "driver-1"],
        ),
        ("k8s://https://h:6443", ["/spark/bin/spark-submit", "--kill", "driver-1", "--master", "k8s://https://h:6443"]),
        ("yarn", ["yarn", "application", "-kill", "driver-1"]),
    ],
)
def test_a_submission_is_ended_by_its_clusters_own_command(master: str, words: list[str]) -> None:
    assert kill_words(SubmitPlace(home="/spark", master=master), "driver-1") == words


def test_applications_of_a_code_pool_are_what_its_archive_declares() -> None:
    assert deployed_application("jobs/nightly.py", "/code") == Application("/code/jobs/nightly.py")
    assert deployed_application("sums.jar#a.B", "/code") == Application("/code/sums.jar", "a.B")
    for mode in (
        "",
        "handlers:resize",
        "../a.py",
        "/etc/a.py",
        "--conf.py",
        "a.jar",
        "a.jar#--x",
        "a.py#B",
        "a/../b.py",
    ):
        with pytest.raises(ApplicationRefusedError, match="no application"):
            deployed_application(mode, "/code")


def test_only_applications_in_opened_places_are_found(tmp_path: Path) -> None:
    opened, closed = tmp_path / "opened", tmp_path / "closed"
    for folder in (opened, closed):
        folder.mkdir()
        for name in ("a.py", "b.jar", "c.sh"):
            (folder / name).write_text("")
    (opened / "link.py").symlink_to(closed / "a.py")
    (opened / "dir.py").mkdir()
    places = [str(opened)]
    assert allowed_application(f"{opened}/a.py", places) == Application(f"{opened}/a.py")
    assert allowed_application(f"{opened}/b.jar#x.Y", places) == Application(f"{opened}/b.jar", "x.Y")
    assert allowed_application(f"{opened}/a.py", [f"{opened}/a.py"]) == Application(f"{opened}/a.py")
    refused = {
        "": "names no application",
        f"{closed}/a.py": "in none of the places",
        f"{opened}/../closed/a.py": "in none of the places",
        f"{opened}/link.py": "in none of the places",
        "a.py": "in none of the places",
        f"{opened}-more/a.py": "in none of the places",
        f"{opened}/none.py": "no such file",
        f"{opened}/dir.py": "no such file",
        f"{opened}/c.sh": "expected a program",
        f"{opened}/b.jar": "expected a program",
        f"{opened}/b.jar#--conf x": "expected a program",
        f"{opened}/a.py#x.Y": "expected a program",
    }
    for named, said in refused.items():
        with pytest.raises(ApplicationRefusedError, match=said):
            allowed_application(named, places)
    with pytest.raises(ApplicationRefusedError, match="in none"):
        allowed_application(f"{opened}/a.py", [])
