"""A job as one argument of a command line, for drivers on machines that share neither pipe nor disk with the task.

Such an argument is seen by many, so a job that travels like this holds no secret; who submits it sees to that.
"""

from __future__ import annotations

import base64
import binascii
import zlib

import msgspec

from spark_apps.job import Job, decode_job
from spark_apps.storage.errors import EnvironmentMismatch

PREFIX = "job:"


def job_argument(job: Job) -> str:
    """The job as an argument of its program: letters, digits and dashes behind ``job:``."""
    return PREFIX + base64.urlsafe_b64encode(zlib.compress(msgspec.json.encode(job), 9)).decode()


def read_job_argument(text: str) -> Job:
    """The job of such an argument. :raises EnvironmentMismatch: it is damaged, or of a newer format."""
    try:
        data = zlib.decompress(base64.urlsafe_b64decode(text.removeprefix(PREFIX)))
    except (binascii.Error, ValueError, zlib.error) as error:
        raise EnvironmentMismatch(
            f"The argument of the app is no job: {error}.",
            hint="Hand it on as it was given; a service that cuts or changes long arguments cannot be used.",
        ) from error
    return decode_job(data)
