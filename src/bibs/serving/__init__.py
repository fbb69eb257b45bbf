"""The service and its page. Needs the extra `bibs[serve]`. A request goes through the files in this order:

doors.py           the key, the room, the size of the body
reading.py         bytes to a request (schemas.py)
checks.py          what is wrong is found before it queues; one budget bounds the cost
pictures.py        pictures to vectors, once each
service.py         the deadline, and clients that go
batching.py        one thread that owns the model decodes together what arrived together
answers.py, completions.py     what was found, as JSON
app.py             which address answers what; watching.py counts and logs
"""

from importlib import import_module

from bibs.vision import MissingExtraError

for package in ("fastapi", "prometheus_client", "python_multipart", "uvicorn"):
    try:
        import_module(package)
    except ImportError as error:
        raise MissingExtraError(
            f'the service needs the package `{package}`, which could not be imported ({error}): pip install ".[serve]"'
        ) from None

from bibs.serving.app import create_app  # noqa: E402
from bibs.serving.settings import Limits, ServiceSettings  # noqa: E402

__all__ = ["Limits", "ServiceSettings", "create_app"]
