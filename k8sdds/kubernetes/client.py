"""Access the Kubernetes API with JSON requests and watches that survive a restart of the API server.

Objects are plain dicts, as in a manifest. The client counts every request that it sends.
"""

from __future__ import annotations

import json
import math
import shlex
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
from k8sdds.system import reading
from k8sdds.system.errors import PrerequisiteError

OUTAGE_TIMEOUT_S = 120
"""How long a request is retried while the API server is unavailable, for example during a restart."""
FIRST_OUTAGE_TIMEOUT_S = 5
"""The same timeout until the API server has answered once: before that, the address is probably wrong."""
REQUEST_TIMEOUT_S = (10, 30)
"""Timeouts for connecting, and between two bytes of a response."""
WATCH_TIMEOUT_S = 300
"""A watch is restarted after this time."""
RESTORE_INTERVAL_S = 2
"""Minimum time between two calls of `KubernetesClient.restore_connection`."""
SETTLE_S = 15
"""How long rejections are retried after an outage: the API server starts to serve before it loads roles."""
AUTHORIZATION_STATUSES = (401, 403)
TRANSIENT_STATUSES = (0, 429, 500, 502, 503, 504)
"""Status codes of a server that is starting, stopping or overloaded."""
NO_SERVICE_ACCOUNT = "error looking up service account"
"""Part of the refusal of a pod in a namespace so new that no controller has created its ServiceAccount yet."""

REMEDY_REFUSED = "check this user's rights, and the namespace's quotas and admission policies"
REMEDY_SERVER = "check the API server: kubectl get --raw /readyz?verbose"
REMEDY_NOT_AN_API_SERVER = (
    "check `server` in the kubeconfig: it must be the URL of the API server, not of a proxy or a login page"
)
REMEDIES = {
    401: "check whether the token or certificate in the kubeconfig has expired",
    501: REMEDY_NOT_AN_API_SERVER,
}
"""Fixes of error statuses; `ApiError` has those of all others."""

MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
SERVER_SIDE_APPLY = "application/apply-patch+yaml"
CORE = "/api/v1"
MAX_ANSWER_BYTES = 128 * 1024 * 1024
"""Largest answer: a list of 5000 pods has some 50 MB."""

T = TypeVar("T")


class ApiError(PrerequisiteError):
    """The API server answered a request with an error status."""

    def __init__(self, status: int, message: str) -> None:
        general = REMEDY_REFUSED if 400 <= status < 500 else REMEDY_SERVER
        super().__init__(message, REMEDIES.get(status, general))
        self.status = status


class Answer(dict[str, Any]):
    """An object in an answer of the API server. A key that it does not have is an error of the server."""

    def __missing__(self, key: str) -> Any:
        raise PrerequisiteError(
            f"an answer of the API server has no {key!r}",
            REMEDY_SERVER,
        )


def answer(body: bytes, source: str) -> Answer:
    """Return the object or list in an answer of an API server. Raises UnreadableError."""
    parsed: Answer = _answers(reading.json_object(body, source, max_bytes=MAX_ANSWER_BYTES))
    entries = parsed.get("items")
    if not isinstance(entries, list | None):
        raise reading.UnreadableError(f"{source}: items is not a list")
    for entry in (parsed, *(entries or ())):
        parts = [entry.get(name) for name in ("metadata", "spec")] if isinstance(entry, Answer) else [""]
        if not all(isinstance(part, Answer | None) for part in parts):
            raise reading.UnreadableError(f"{source}: not an object of the Kubernetes API")
    return parsed


def _answers(value: Any) -> Any:
    if isinstance(value, dict):
        return Answer((key, _answers(item)) for key, item in value.items())
    return [_answers(item) for item in value] if isinstance(value, list) else value


class KubernetesClient:
    """A client for one cluster, authenticated as one user. Safe to use from several threads."""

    def __init__(self, configuration: client.Configuration) -> None:
        # Retries of urllib3 would hide outages from `retry_outages`.
        configuration.retries = False
        configuration.connection_pool_maxsize = 32
        self.configuration = configuration
        # The library sets `configuration.host` again whenever it reads the credentials.
        self.server = str(configuration.host)
        """URL of the API server."""
        self.kubectl = "kubectl"
        """The command line of kubectl that accesses the same cluster."""
        self.calls: Counter[str] = Counter()
        """Number of requests sent, retries included, by kind: get, create, delete, patch, watch, exec."""
        self.outage_timeout_s: float = FIRST_OUTAGE_TIMEOUT_S
        self.restore_connection: Callable[[], str | None] = lambda: None
        """Called when the API server cannot be reached, to start what leads to it again, such as a port forward.

        Returns the URL of the API server from then on; None if it has not changed.
        """
        self._restoring = threading.Lock()
        self._restored_s = -math.inf
        """When `restore_connection` was last called (monotonic clock)."""
        self._lock = threading.Lock()
        self._last_outage_s = -math.inf
        """When the API server was last unavailable (monotonic clock)."""
        self._resources: dict[tuple[str, str], str] = {}
        """(apiVersion, kind) to the resource name, as far as discovery documents were read."""
        self._client = client.ApiClient(configuration)

    @classmethod
    def from_kubeconfig(cls, kubeconfig: Path | None, context: str | None) -> KubernetesClient:
        """Return a client for a kubeconfig's context; None means the one that kubectl uses."""
        found = cls(kubeconfigs.load(kubeconfig, context))
        options = {"--kubeconfig": kubeconfig, "--context": context}
        found.kubectl = shlex.join(
            ["kubectl", *(str(part) for option in options.items() if option[1] for part in option)]
        )
        return found

    def headers(self) -> dict[str, str]:
        """Return the authentication headers, with a new token if the kubeconfig has a plugin that provides tokens."""
        headers: dict[str, str] = {}
        self._client.update_params_for_auth(headers, [], ["BearerToken"], "", "GET", None)
        return headers

    def count(self, kind: str) -> None:
        """Count a request that is about to be sent."""
        with self._lock:
            self.calls[kind] += 1

    # -- requests -----------------------------------------------------------------------------------------

    def get(self, path: str, **query: Any) -> dict[str, Any]:
        """Return an object or a list."""
        return self._parse(self.get_raw(path, **query))

    def get_raw(self, path: str, **query: Any) -> bytes:
        """Return the body of a GET response, for example of /apis/metrics.k8s.io/v1beta1/nodes."""
        return self._request("GET", _url(path, query))

    def find(self, path: str) -> dict[str, Any] | None:
        """Return an object, or None if it does not exist."""
        try:
            return self.get(path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def create(self, path: str, body: dict[str, Any], **query: Any) -> dict[str, Any]:
        """Create an object and return it. The server rejects unknown fields."""
        attempts: list[int] = []
        try:
            query = {"fieldValidation": "Strict", "fieldManager": "k8sdds", **query}
            return self._parse(self._request("POST", _url(path, query), body, attempts))
        except ApiError as error:
            if error.status == 409 and len(attempts) > 1:
                # An earlier attempt created the object, but its response was lost.
                return self.get(f"{path}/{body['metadata']['name']}")
            raise

    def get_once(self, path: str, **query: Any) -> dict[str, Any]:
        """Return an object or a list. Unlike other requests, it is not repeated if the API server is unavailable."""
        return self._parse(self._send("GET", _url(path, query), None))

    def patch_once(self, path: str, body: dict[str, Any]) -> None:
        """Merge fields into an object. Unlike other requests, it is not repeated if the API server is unavailable."""
        self._send("PATCH", path, body, MERGE_PATCH)

    def patch(self, path: str, body: dict[str, Any], content_type: str = MERGE_PATCH, **query: Any) -> None:
        """Change an object. The content type determines how `body` does: by default, it is merged into the object."""
        self._request("PATCH", _url(path, query), body, content_type=content_type)

    def delete(
        self, path: str, grace_s: int | None = None, propagation: str = "Background", **query: Any
    ) -> None:
        """Start to delete an object. An object that does not exist is not an error."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        options = body if grace_s is None else {**body, "gracePeriodSeconds": grace_s}
        try:
            self._request("DELETE", _url(path, query), options)
        except ApiError as error:
            if error.status != 404:
                raise

    def _parse(self, body: bytes) -> dict[str, Any]:
        try:
            return answer(body, self.server)
        except reading.UnreadableError as error:
            raise PrerequisiteError(
                f"the response of {self.server} is not that of a Kubernetes API server",
                REMEDY_NOT_AN_API_SERVER,
            ) from error

    def _request(
        self,
        method: str,
        url: str,
        body: dict[str, Any] | None = None,
        attempts: list[int] | None = None,
        content_type: str = "application/json",
    ) -> bytes:
        def send() -> bytes:
            if attempts is not None:
                attempts.append(1)
            return self._send(method, url, body, content_type)

        response = self.retry_outages(send, self.outage_timeout_s)
        self.outage_timeout_s = OUTAGE_TIMEOUT_S
        return response

    def retry_outages(self, send: Callable[[], T], timeout_s: float = OUTAGE_TIMEOUT_S) -> T:
        """Call `send`; retry while the API server is unavailable or has not loaded its roles after an outage.

        Also retry while the namespace of a pod is so new that it has no ServiceAccount.
        """
        end = time.monotonic() + timeout_s
        pause = 0.1
        while True:
            try:
                return send()
            except ApiError as error:
                now = time.monotonic()
                if error.status in TRANSIENT_STATUSES:
                    self._last_outage_s = now
                elif NO_SERVICE_ACCOUNT not in error.message and (
                    error.status not in AUTHORIZATION_STATUSES or now > self._last_outage_s + SETTLE_S
                ):
                    raise
                if now > end:
                    raise
            except (urllib3.exceptions.HTTPError, ApiException, OSError) as error:
                self._last_outage_s = time.monotonic()
                self._restore_connection()
                certificate = "certificate" in str(error).lower()
                if certificate or self._last_outage_s > end:
                    raise PrerequisiteError(
                        f"{self.server} does not answer: {reading.one_line(str(error), 200) or type(error).__name__}",
                        "check the certificates in the kubeconfig"
                        if certificate
                        else f"check that the cluster is up: {self.kubectl} get nodes",
                    ) from error
            time.sleep(pause)
            pause = min(2.0, pause * 1.6)

    def _restore_connection(self) -> None:
        """Call `restore_connection`, unless another thread has just called it."""
        with self._restoring:
            if time.monotonic() > self._restored_s + RESTORE_INTERVAL_S:
                self.server = self.restore_connection() or self.server
                self._restored_s = time.monotonic()

    def _send(
        self, method: str, url: str, body: dict[str, Any] | None, content_type: str = "application/json"
    ) -> bytes:
        self.count({"GET": "get", "POST": "create", "DELETE": "delete", "PATCH": "patch"}[method])
        headers = {**self.headers(), "Accept": "application/json", "Content-Type": content_type}
        # The library encodes JSON only; all JSON is YAML, too.
        content = json.dumps(body) if content_type == SERVER_SIDE_APPLY else body
        response = self._client.call_api(method, self.server + url, headers, content, None, REQUEST_TIMEOUT_S)
        data: bytes = response.read()
        if not 200 <= response.status < 300:
            raise ApiError(response.status, _error_message(response.status, data))
        return data

    def watch(self, path: str, for_s: float = WATCH_TIMEOUT_S, **query: Any) -> Iterator[dict[str, Any]]:
        """Yield the events of a watch. Ends without an error after `for_s`, or when its connection ends."""
        self.count("watch")
        url = self.server + _url(path, {**query, "watch": "true", "timeoutSeconds": round(for_s)})
        try:
            yield from self._watch(url, for_s)
        except (urllib3.exceptions.HTTPError, OSError, reading.UnreadableError):
            # The connection broke, perhaps within a line. Callers list the objects, which waits for the server.
            self._restore_connection()

    def _watch(self, url: str, for_s: float) -> Iterator[dict[str, Any]]:
        response = self._client.rest_client.pool_manager.request(
            "GET",
            url,
            headers={**self.headers(), "Accept": "application/json"},
            preload_content=False,
            timeout=urllib3.Timeout(connect=REQUEST_TIMEOUT_S[0], read=for_s + 30),
        )
        try:
            if response.status != 200:
                raise ApiError(response.status, _error_message(response.status, response.read()))
            for line in response:
                if line.strip():
                    yield answer(line, self.server)
        finally:
            response.close()

    # -- discovery and permissions ------------------------------------------------------------------------

    def resource(self, api_version: str, kind: str) -> str:
        """Return the resource name of a kind in URLs, such as `daemonsets` for DaemonSet in apps/v1.

        The API server's discovery document of each group and version is read once.
        """
        if (api_version, kind) not in self._resources:
            for resource in self.get(api_root(api_version)).get("resources", []):
                if "/" not in resource["name"]:  # names with a slash are subresources
                    self._resources[api_version, resource["kind"]] = resource["name"]
        try:
            return self._resources[api_version, kind]
        except KeyError:
            raise PrerequisiteError(
                f"the API server does not serve {kind} in {api_version}",
                f"use a cluster that serves it: {self.kubectl} api-resources",
            ) from None

    def is_allowed(self, verb: str, group: str, resource: str, namespace: str = "", name: str = "") -> bool:
        """Return whether this user may do something; `resource` is for example `pods` or `pods/exec`."""
        resource, _, subresource = resource.partition("/")
        attributes = {"verb": verb, "group": group, "resource": resource, "subresource": subresource}
        attributes |= {"namespace": namespace, "name": name}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {key: value for key, value in attributes.items() if value}},
        }
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        return bool(self.create(path, review)["status"].get("allowed"))


def api_root(api_version: str) -> str:
    """Return the URL path of a group and version, such as /api/v1 for v1 and /apis/apps/v1 for apps/v1."""
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


def _url(path: str, query: dict[str, Any]) -> str:
    return f"{path}?{urlencode(query, doseq=True)}" if query else path


def _error_message(status: int, body: bytes) -> str:
    try:
        return reading.one_line(str(reading.json_object(body, "")["message"]), 1000)
    except (reading.UnreadableError, KeyError):
        text = reading.one_line(body.decode(errors="replace"), 200)
        return f"the API server answered with status {status}{f': {text}' if text else ''}"
