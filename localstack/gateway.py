"""Calls of the deployed HTTP API, signed; and what an emulator's gateway leaves out, done as its template says."""

import http.client
import json
import re
import urllib.parse

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest

BUFFERED = "POST /api/ingest/buffered/{source}"


class Api:
    """One API behind an emulator's endpoint."""

    def __init__(self, deployment, api, region, host, token):
        self.deployment, self.api, self.region, self.host = deployment, api, region, host
        self.token = token
        self.place = urllib.parse.urlsplit(deployment.endpoint)
        self.integration = None

    def call(self, method, path, body=b"", headers=None):
        """Calls it; answers status and body."""
        headers = {"Host": f"{self.api}.{self.host}:{self.place.port}", **(headers or {})}
        request = AWSRequest(method=method, url=f"http://{headers['Host']}{path}", data=body, headers=headers)
        if path.startswith("/api/ingest/"):
            # Senders of webhooks cannot sign as AWS users do.
            request.headers["Authorization"] = f"Bearer {self.token}"
        else:
            SigV4Auth(self.deployment.session.get_credentials(), "execute-api", self.region).add_auth(request)
        connection = http.client.HTTPConnection(self.place.hostname, self.place.port, timeout=60)
        try:
            connection.request(method, path, body, dict(request.headers))
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def query(self, sql):
        """Rows of a statement, or what was answered instead."""
        body = json.dumps({"sql": sql}).encode()
        status, answer = self.call("POST", "/api/query", body, {"Content-Type": "application/json"})
        if status != 200:
            return None, f"{status} {answer.decode(errors='replace')[:300]}"
        return json.loads(answer)["rows"], None

    def buffered(self, source, body, headers):
        """Posts to the buffer; answers whether the gateway did it, or we in its place."""
        status, answer = self.call("POST", f"/api/ingest/buffered/{source}", body, headers)
        if status in (200, 202):
            return True
        if status < 500:
            raise RuntimeError(f"the buffered path answered {status}: {answer[:300]}")
        # This gateway has no integration with SQS: put the message down as the deployed integration says.
        sent = {key.lower(): value for key, value in headers.items()} | {"authorization": f"Bearer {self.token}"}
        self.integrate({"source": source}, body, sent)
        return False

    def integrate(self, path, body, headers):
        if self.integration is None:
            client = self.deployment.client("apigatewayv2")
            routes = client.get_routes(ApiId=self.api)["Items"]
            target = next(route["Target"] for route in routes if route["RouteKey"] == BUFFERED)
            found = client.get_integration(ApiId=self.api, IntegrationId=target.split("/")[-1])
            # Nor does it remember the subtype; what the parameters are for is plain from their names.
            assert found.get("IntegrationSubtype", "SQS-SendMessage") == "SQS-SendMessage", found
            self.integration = found["RequestParameters"]

        def value(match):
            kind, name = match[1].split(".", 1)
            return json.dumps({"path": path, "header": headers}[kind].get(name, ""))[1:-1]

        asked = self.integration
        assert asked["MessageBody"] == "$request.body", asked
        attributes = re.sub(r"\$\{request\.([^}]+)\}", value, asked["MessageAttributes"])
        self.deployment.client("sqs").send_message(
            QueueUrl=asked["QueueUrl"], MessageBody=body.decode(), MessageAttributes=json.loads(attributes)
        )
