"""Calls of a deployed HTTP API, as an AWS user and as a stranger."""

import http.client
import ssl
import urllib.error
import urllib.parse
import urllib.request

# A cold start, and the 30 seconds that the gateway waits at most.
SECONDS = 35


class Api:
    """One API, on AWS or behind an emulator's endpoint."""

    def __init__(self, deployment, api, url, region):
        self.deployment, self.region = deployment, region
        self.place = urllib.parse.urlsplit(deployment.endpoint or url)
        # An emulator tells its APIs apart by the name that the caller used.
        self.host = f"{api}.{emulator_host(self.place)}:{self.place.port}" if deployment.endpoint else self.place.netloc

    def get(self, path, signed):
        """Status and body; an OSError when nothing answers."""
        headers = {"Host": self.host}
        if signed:
            from botocore.auth import SigV4Auth
            from botocore.awsrequest import AWSRequest

            request = AWSRequest(method="GET", url=f"{self.place.scheme}://{self.host}{path}", headers=headers)
            SigV4Auth(self.deployment.session.get_credentials(), "execute-api", self.region).add_auth(request)
            headers = dict(request.headers)
        if self.place.scheme == "https":
            connection = http.client.HTTPSConnection(
                self.place.hostname, self.place.port, timeout=SECONDS, context=ssl.create_default_context()
            )
        else:
            connection = http.client.HTTPConnection(self.place.hostname, self.place.port, timeout=SECONDS)
        try:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except http.client.HTTPException as error:
            raise OSError(f"no HTTP is spoken there: {error!r}") from None
        finally:
            connection.close()


def emulator_host(place):
    """The domain under which an emulator serves APIs."""
    try:
        with urllib.request.urlopen(f"{place.scheme}://{place.netloc}/_ministack/health", timeout=5) as answer:
            ours = answer.status == 200
    except (OSError, urllib.error.URLError):
        ours = False
    return "execute-api.localhost" if ours else "execute-api.localhost.localstack.cloud"
