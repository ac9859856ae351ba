"""The `Authorization` header of one repository, as the server demands it: Basic, or Bearer with a token endpoint."""

import json
import re
import threading
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlencode

from onnxreg.registry.oci.credentials import Credential, find_credential
from onnxreg.registry.oci.target import OciTarget
from onnxreg.registry.store.http.http import check_url, make_opener, read_body
from onnxreg.registry.store.net import pace
from onnxreg.schema.core.errors import InputError, RemoteError, why

MAX_TOKEN_BYTES = 2**20
_CHALLENGE = re.compile(r"\s*(basic|bearer)\b", re.IGNORECASE)
_PARAMETER = re.compile(r'([a-zA-Z_]+)="([^"]*)"')


@dataclass
class Login:
    """The present authorization. `mounts` are repositories whose blobs are mounted."""

    target: OciTarget
    writes: bool = False
    mounts: Sequence[str] = ()
    header: dict[str, str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def renew(self, challenges: Sequence[str], refused: dict[str, str]) -> bool:
        """Log in as the server demands; False if what it refused is the best there is."""
        with self._lock:
            if self.header != refused:
                return True  # another thread did it meanwhile
            for challenge in challenges:
                match = _CHALLENGE.match(challenge)
                if match is None:
                    continue
                credential = find_credential(self.target.host, self.target.repository)
                if match[1].lower() == "basic":
                    if credential is None or credential.identity_token:
                        return False
                    self.header = {"Authorization": credential.basic}
                else:
                    parameters = dict(_PARAMETER.findall(challenge))
                    self.header = {"Authorization": f"Bearer {self._token(parameters, credential)}"}
                return self.header != refused
            return False

    def _scopes(self) -> list[str]:
        actions = "pull,push" if self.writes else "pull"
        own = f"repository:{self.target.repository}:{actions}"
        return [own, *(f"repository:{name}:pull" for name in self.mounts)]

    def _token(self, parameters: dict[str, str], credential: Credential | None) -> str:
        """An access token from the endpoint that the server names."""
        realm = parameters.get("realm", "")
        try:
            check_url(realm.partition("?")[0])
        except InputError as error:
            raise RemoteError(
                f"{self.target} names a token endpoint that is not used: {error.message}"
            ) from None
        query: list[tuple[str, str]] = [("scope", scope) for scope in self._scopes()]
        if parameters.get("service"):
            query.append(("service", parameters["service"]))
        if credential is not None and credential.identity_token:
            form = {
                "grant_type": "refresh_token",
                "refresh_token": credential.identity_token,
                "client_id": "onnxreg",
                "service": parameters.get("service", ""),
                "scope": " ".join(self._scopes()),
            }
            request = urllib.request.Request(realm, data=urlencode(form).encode(), method="POST")
        else:
            joint = "&" if "?" in realm else "?"
            request = urllib.request.Request(f"{realm}{joint}{urlencode(query)}")
            if credential is not None:
                request.add_unredirected_header("Authorization", credential.basic)
        try:
            with pace.reading(), make_opener(realm).open(request, timeout=pace.timeout()) as answer:
                value = json.loads(bytes(read_body(answer, realm, MAX_TOKEN_BYTES)))
            token = value.get("token") or value["access_token"]
        except urllib.error.HTTPError as error:
            with error:
                raise RemoteError(
                    f"the token endpoint of {self.target.host} answers {error.code} {error.reason}",
                    f"log in: skopeo login {self.target.host}",
                ) from None
        except OSError as error:
            raise RemoteError(f"the token endpoint of {self.target.host} failed: {why(error)}") from error
        except (ValueError, KeyError, AttributeError, RecursionError):
            raise RemoteError(f"the token endpoint of {self.target.host} gave no token") from None
        if not isinstance(token, str) or not re.fullmatch(r"[\x21-\x7e]+", token):
            raise RemoteError(f"the token endpoint of {self.target.host} gave a malformed token")
        return token
