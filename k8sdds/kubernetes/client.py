"""The API server as the testbed sees it: JSON requests that outlast its restarts, and watches.

Objects are plain dicts, as in a manifest. Every request is counted, so that their number can be bounded.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

import urllib3
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from k8sdds.kubernetes import kubeconfig as kubeconfigs
from k8sdds.system.errors import PrerequisiteError

PATIENCE_S = 120
"""How long the API server may be away, as while it restarts, before a request gives up."""
FIRST_PATIENCE_S = 5
"""The same before it has answered for the first time: then it is rather a wrong address."""
TIMEOUT_S = (10, 30)
"""To connect, and between two bytes of an answer."""
WATCH_S = 300
"""After so long a watch is begun anew."""
SETTLES_S = 15
"""After an outage the API server may refuse what it allows a moment later: it reads roles after it serves."""
UNSETTLED = (401, 403)
PASSING = (0, 429, 500, 502, 503, 504)
"""Answers of a server that starts, stops or is overburdened."""

EXPIRED = "the cluster does not know this user: has the kubeconfig's token or certificate expired?"
STRANGE = "check the kubeconfig's `server`: is that the API server, or a proxy or a login page before it?"

CORE = "/api/v1"

T = TypeVar("T")


class ApiRejected(PrerequisiteError):
    """The API server said no."""

    def __init__(self, status: int, message: str, remedy: str = "") -> None:
        super().__init__(message, remedy)
        self.status = status


class Api:
    """One cluster, as one user."""

    def __init__(self, configuration: client.Configuration) -> None:
        # urllib3's own tries would hide outages from ours.
        configuration.retries = False
        configuration.connection_pool_maxsize = 32
        self.configuration = configuration
        self.calls: Counter[str] = Counter()
        """Requests as sent, each try of one included, by kind: get, create, delete, watch, exec."""
        self._counting = threading.Lock()
        self.patience_s = FIRST_PATIENCE_S
        self._away_s = -math.inf
        """When it was found away the last time, on a clock that does not jump."""
        self._client = client.ApiClient(configuration)

    @classmethod
    def of(cls, kubeconfig: Path | None, context: str | None) -> Api:
        """The cluster of a kubeconfig's context, by default those that kubectl takes; else an InputError."""
        return cls(kubeconfigs.read(kubeconfig, context))

    @property
    def server(self) -> str:
        """URL of the API server."""
        return str(self.configuration.host)

    def headers(self) -> dict[str, str]:
        """Who we are, refreshed where the kubeconfig says how."""
        headers: dict[str, str] = {}
        self._client.update_params_for_auth(headers, [], ["BearerToken"], "", "GET", None)
        return headers

    def count(self, kind: str) -> None:
        """A request is about to be sent; in any thread."""
        with self._counting:
            self.calls[kind] += 1

    # -- requests -----------------------------------------------------------------------------------------

    def get(self, path: str, **query: Any) -> dict[str, Any]:
        """One object, or a list."""
        return self._object(self.get_raw(path, **query))

    def get_raw(self, path: str, **query: Any) -> bytes:
        """What a GET of a path answers, such as of /apis/metrics.k8s.io/v1beta1/nodes."""
        return self._request("GET", _url(path, query))

    def find(self, path: str) -> dict[str, Any] | None:
        """One object, or None where there is none."""
        try:
            return self.get(path)
        except ApiRejected as refused:
            if refused.status == 404:
                return None
            raise

    def create(self, path: str, body: dict[str, Any], **query: Any) -> dict[str, Any]:
        """A new object. Fields that the server does not know are refused."""
        tried: list[int] = []
        try:
            query = {"fieldValidation": "Strict", "fieldManager": "k8sdds", **query}
            return self._object(self._request("POST", _url(path, query), body, tried))
        except ApiRejected as refused:
            if refused.status == 409 and len(tried) > 1:
                # The answer to an earlier try was lost, not the object.
                return self.get(f"{path}/{body['metadata']['name']}")
            raise

    def delete(self, path: str, grace_s: int | None = None, **query: Any) -> None:
        """Begin to remove an object; one that is gone is no error."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        options = body if grace_s is None else {**body, "gracePeriodSeconds": grace_s}
        try:
            self._request("DELETE", _url(path, query), options)
        except ApiRejected as refused:
            if refused.status != 404:
                raise

    def _object(self, data: bytes) -> dict[str, Any]:
        try:
            found = json.loads(data)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise PrerequisiteError(f"{self.server} answers, but not as a Kubernetes API server does", STRANGE)
        return found

    def _request(
        self, method: str, url: str, body: dict[str, Any] | None = None, tried: list[int] | None = None
    ) -> bytes:
        def once() -> bytes:
            if tried is not None:
                tried.append(1)
            return self._once(method, url, body)

        data = self.patiently(once, self.patience_s)
        self.patience_s = PATIENCE_S
        return data

    def patiently(self, once: Callable[[], T], patience_s: float = PATIENCE_S) -> T:
        """Call again while the API server is away, says that it cannot now, or has just come back and does
        not know yet what its users may do; then a PrerequisiteError."""
        end = time.monotonic() + patience_s
        pause = 0.1
        while True:
            try:
                return once()
            except ApiRejected as refused:
                now = time.monotonic()
                if refused.status in PASSING:
                    self._away_s = now
                elif refused.status not in UNSETTLED or now > self._away_s + SETTLES_S:
                    raise
                if now > end:
                    raise
            except (urllib3.exceptions.HTTPError, ApiException, OSError) as error:
                self._away_s = time.monotonic()
                certificate = "certificate" in str(error).lower()
                if certificate or self._away_s > end:
                    raise PrerequisiteError(
                        f"{self.server} does not answer: {_short(error)}",
                        "check the kubeconfig" if certificate else "is the cluster up? kubectl get nodes",
                    ) from error
            time.sleep(pause)
            pause = min(2.0, pause * 1.6)

    def _once(self, method: str, url: str, body: dict[str, Any] | None) -> bytes:
        self.count({"GET": "get", "POST": "create", "DELETE": "delete"}[method])
        headers = {**self.headers(), "Accept": "application/json", "Content-Type": "application/json"}
        response = self._client.call_api(method, self.server + url, headers, body, None, TIMEOUT_S)
        data = response.read()
        if not 200 <= response.status < 300:
            remedy = {401: EXPIRED, 501: STRANGE}.get(response.status, "")
            raise ApiRejected(response.status, _message(response.status, data), remedy)
        return data

    def watch(self, path: str, for_s: float = WATCH_S, **query: Any) -> Iterator[dict[str, Any]]:
        """Events of one watch, until its time is over or the server is gone; then it just ends."""
        self.count("watch")
        url = self.server + _url(path, {**query, "watch": "true", "timeoutSeconds": round(for_s)})
        response = self._client.rest_client.pool_manager.request(
            "GET",
            url,
            headers={**self.headers(), "Accept": "application/json"},
            preload_content=False,
            timeout=urllib3.Timeout(connect=TIMEOUT_S[0], read=for_s + 30),
        )
        try:
            if response.status != 200:
                raise ApiRejected(response.status, _message(response.status, response.read()))
            for line in response:
                if line.strip():
                    yield json.loads(line)
        finally:
            response.close()

    # -- convenience --------------------------------------------------------------------------------------

    def may(self, verb: str, group: str, resource: str, namespace: str = "", name: str = "") -> bool:
        """Whether this user may do something (resource as `pods` or `pods/exec`)."""
        kind, _, sub = resource.partition("/")
        wanted = {"verb": verb, "group": group, "resource": kind, "subresource": sub}
        wanted |= {"namespace": namespace, "name": name}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {key: value for key, value in wanted.items() if value}},
        }
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        return bool(self.create(path, review)["status"].get("allowed"))


def _url(path: str, query: dict[str, Any]) -> str:
    return f"{path}?{urlencode(query, doseq=True)}" if query else path


def _message(status: int, data: bytes) -> str:
    try:
        found = json.loads(data)
        return str(found["message"])
    except (ValueError, KeyError, TypeError):
        text = " ".join(data.decode(errors="replace").split())[:200]
        return f"the API server answered {status}{f': {text}' if text else ''}"


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
