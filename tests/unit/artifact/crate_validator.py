"""Validate that an RO-Crate is a Process Run Crate; runs in a Python with roc-validator, prints violations.

Usage: crate_validator.py ARTIFACT.zip CACHE. Works without the internet: the JSON-LD context is the newer one
that the package rocrate ships, which has every term of 1.1 that we use, put where the validator looks first.
"""

import io
import sys
from pathlib import Path

import requests
import rocrate
from requests_cache import CachedResponse, CachedSession
from rocrate_validator import services
from rocrate_validator.models import Severity
from urllib3 import HTTPResponse

CONTEXT = "https://w3id.org/ro/crate/1.1/context"
KIND = {"Content-Type": "application/ld+json"}


def main(artifact: str, cache: str) -> int:
    """Return the number of violated requirements."""
    context = (Path(rocrate.__file__).parent / "data" / "ro-crate.jsonld").read_bytes()
    request = requests.Request("GET", CONTEXT).prepare()
    response = requests.Response()
    response.status_code, response.url, response.request = 200, CONTEXT, request
    response.headers.update(KIND)
    response.raw = HTTPResponse(io.BytesIO(context), headers=KIND, status=200, preload_content=False)
    session = CachedSession(cache_name=cache, backend="sqlite", expire_after=-1)
    session.cache.save_response(
        CachedResponse.from_response(response), cache_key=session.cache.create_key(request)
    )
    result = services.validate(
        services.ValidationSettings(
            rocrate_uri=artifact,
            profile_identifier="process-run-crate",
            requirement_severity=Severity.REQUIRED,
            offline=True,
            cache_path=cache,
        )
    )
    issues = list(result.get_issues())
    for issue in issues:
        print(issue.check.identifier, issue.message)
    print("valid" if result.passed() else "not valid")
    return len(issues)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
