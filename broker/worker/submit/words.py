"""Command lines of spark-submit, and of what ends a submission on a cluster."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from broker.worker.submit.application import Application
from broker.worker.submit.payload import conf_text


class SubmitPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Place that applications go to: what the operator has decided.

    Attributes:
        home: Folder of Spark.
        master: URL.
        deploy_mode: "client" or "cluster".
        properties: File of settings; "" = Spark's own.

    """

    home: str
    master: str
    deploy_mode: str = "client"
    properties: str = ""


def submit_words(
    place: SubmitPlace,
    application: Application,
    *,
    name: str,
    own_conf: Mapping[str, str],
    conf: Mapping[str, str | int | float | bool],
    args: list[str],
) -> list[str]:
    """Return the words of spark-submit. What a payload says comes behind an option's name or behind the file.

    Args:
        place: Where it goes.
        application: What.
        name: Of the application, unless it calls itself otherwise.
        own_conf: The worker's settings; they come last and win.
        conf: The payload's.
        args: Of the application: spark-submit reads no options behind the file.

    """
    words = [f"{place.home}/bin/spark-submit", "--master", place.master, "--deploy-mode", place.deploy_mode]
    words += ["--name", name]
    if place.properties:
        words += ["--properties-file", place.properties]
    for key, value in conf.items():
        words += ["--conf", f"{key}={conf_text(value)}"]
    for key, text in own_conf.items():
        words += ["--conf", f"{key}={text}"]
    if application.main_class:
        words += ["--class", application.main_class]
    return [*words, application.path, *args]


def kill_words(place: SubmitPlace, submission_id: str) -> list[str]:
    """Return the words of the command that ends a submission on a cluster."""
    if place.master.startswith("spark://"):
        return [
            f"{place.home}/bin/spark-class", "org.apache.spark.deploy.Client", "kill", place.master, submission_id,
        ]  # fmt: skip
    if place.master.startswith("k8s://"):
        return [f"{place.home}/bin/spark-submit", "--kill", submission_id, "--master", place.master]
    return ["yarn", "application", "-kill", submission_id]
