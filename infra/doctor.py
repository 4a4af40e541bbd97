#!/usr/bin/env python3
"""Looks whether a deployment is complete and well; changes nothing.

Needs boto3. Ends with 0 when nothing fails, 1 when something does, 3 when AWS cannot be reached.

    infra/doctor.py --name shop
"""

import argparse
import base64
import datetime
import json
import sys

import deploy
import plan
import template
from calls import Api

if deploy.boto3:
    import botocore.exceptions

HEALTHY = {"CREATE_COMPLETE", "UPDATE_COMPLETE"}
# Each with its function.
QUEUES = {"advances": "coalesce", "refreshes": "refresh", "buffer": "ingest"}
REDRIVE = "infra/RUNBOOK.md, Redrive"
ALARMS = "infra/RUNBOOK.md, Alarms"
# A deployment of the same templates changes nothing, so it does not undo what was done by hand either.
BY_HAND = "a deployment does not undo what was changed by hand"
# How old a metric may be.
RECENT = datetime.timedelta(minutes=20)
DAY = 86400


class Doctor:
    """One look at one deployment."""

    def __init__(self, asked):
        self.name, self.emulated = asked.name, bool(asked.endpoint)
        self.deployment = deploy.Deployment(asked.name, asked.endpoint, asked.region)
        self.region = self.deployment.session.region_name
        self.clients, self.checks = {}, []
        self.again = f"`headwater deploy --name {asked.name}`, with every --set of the last time"
        self.outputs, self.given = {}, {}

    def client(self, service):
        if service not in self.clients:
            self.clients[service] = self.deployment.client(service)
        return self.clients[service]

    def add(self, status, area, check, found, remedy=""):
        row = {"area": area, "check": check, "status": status, "found": str(found), "do": "" if status == "ok" else remedy}
        self.checks.append(row)

    def judge(self, good, area, check, found, remedy, otherwise="fail"):
        self.add("ok" if good else otherwise, area, check, found, remedy)

    def anew(self, stack):
        """How a resource that somebody deleted comes back."""
        name = f"{self.name}-{stack}"
        command = f"aws cloudformation delete-stack --stack-name {name}"
        first = "let the queues run empty first, what lies in them goes with the stack; " if stack == "queues" else ""
        return f"a deployment does not see that it is gone: {first}{command}, then {self.again}"

    def setting(self, good, area, check, found, command):
        """A setting of a resource. Emulators do not keep all of them, which says nothing about the deployment."""
        remedy = f"aws {command}, with what infra/storage.yaml says; {BY_HAND}"
        remedy = "nothing: this emulator does not keep it" if self.emulated else remedy
        self.judge(good, area, check, found, remedy, "warn" if self.emulated else "fail")

    def examine(self):
        """Everything, in the order in which things depend on each other."""
        if not self.stacks():
            return
        for area, look in (
            ("functions", self.functions), ("triggers", self.triggers), ("queues", self.queues), ("buckets", self.buckets),
            ("tables", self.tables), ("alarms", self.alarms), ("auth", self.auth), ("status", self.status),
        ):
            try:
                look()
            except botocore.exceptions.ClientError as error:
                # One thing that is gone or may not be looked at does not hide the others.
                self.add("fail", area, "can be looked at", error, "restore what is gone, or grant the right to read it")
            except KeyError as error:
                self.add("fail", area, "can be looked at", f"nothing deployed tells {error}", self.again)

    def stacks(self):
        """Whether there is anything to look at."""
        found = {stack: self.deployment.describe(f"{self.name}-{stack}") for stack in plan.STACKS}
        if not any(found.values()):
            self.add("fail", "stacks", "deployed", f"no stack of `{self.name}` in {self.region}",
                     "`headwater deploy`, or name another deployment with --name or --region")
            return False
        for stack, told in found.items():
            name = f"{self.name}-{stack}"
            if not told:
                self.add("fail", "stacks", name, "missing", self.again)
                continue
            status = told["StackStatus"]
            if status in HEALTHY:
                self.current(stack, name, status)
            elif status.endswith("_IN_PROGRESS"):
                self.add("warn", "stacks", name, status, "a deployment is under way: look again when it has ended")
            elif status == "UPDATE_ROLLBACK_COMPLETE":
                why = self.deployment.why(told)
                self.add("warn", "stacks", name, f"{status}: {why}", f"the last deployment failed: repair that, then {self.again}")
            else:
                why = self.deployment.why(told)
                self.add("fail", "stacks", name, f"{status}: {why}", f"repair that, then {self.again}; infra/RUNBOOK.md, Roll back")
            self.given[stack] = {p["ParameterKey"]: p["ParameterValue"] for p in told.get("Parameters", [])}
            self.outputs |= {o["OutputKey"]: o["OutputValue"] for o in told.get("Outputs", [])}
        return True

    def current(self, stack, name, status):
        """Whether a stack is of the template in this folder."""
        told = self.client("cloudformation").get_template(StackName=name, TemplateStage="Original")["TemplateBody"]
        same = not isinstance(told, str) or told.strip() == (plan.HERE / f"{stack}.yaml").read_text().strip()
        found = status if same else f"{status}, of another {stack}.yaml than this one"
        self.judge(same, "stacks", name, found, "deploy, or look with the templates that were deployed", "warn")

    def functions(self):
        """Whether functions are what the last deployment made them."""
        document = template.read("functions.yaml", (plan.HERE / "functions.yaml").read_text())
        values = template.Values(document, self.given["functions"])
        shared = document["Globals"]["Function"]["Environment"]["Variables"]
        for resource in document["Resources"].values():
            if resource["Type"] == "AWS::Serverless::Function":
                self.function(resource["Properties"], values, shared)

    def function(self, properties, values, shared):
        name, functions = values.of(properties["FunctionName"]), self.client("lambda")
        try:
            told = functions.get_function(FunctionName=name)
        except functions.exceptions.ResourceNotFoundException:
            return self.add("fail", name, "active", "missing", self.anew("functions"))
        told = told["Configuration"]
        state, last = told.get("State", "Active"), told.get("LastUpdateStatus", "Successful")
        why = told.get("StateReason") or told.get("LastUpdateStatusReason") or ""
        self.judge((state, last) == ("Active", "Successful"), name, "active", f"{state}, {last} {why}".strip(),
                   "wait if it is pending; else repair what the reason says")
        key = values.of(properties["CodeUri"]["Key"])
        runs = base64.b64decode(told["CodeSha256"]).hex()[:32]
        self.judge(key.endswith(f"/{runs}.zip"), name, "code of the last deployment", f"{runs[:12]}..",
                   f"aws lambda update-function-code --function-name {name} --s3-bucket {self.outputs['CodeBucket']} "
                   f"--s3-key {key}; {BY_HAND}")
        wanted = values.of({**shared, **properties.get("Environment", {}).get("Variables", {})})
        has = told.get("Environment", {}).get("Variables", {})
        wrong = [key for key, value in wanted.items() if str(has.get(key, "")) != str(value)]
        shown = f"not as deployed: {', '.join(wrong)}" if wrong else f"{len(wanted)} variables"
        self.judge(not wrong, name, "environment", shown,
                   f"aws lambda update-function-configuration --function-name {name} --environment ..; {BY_HAND}")
        reserved = functions.get_function_concurrency(FunctionName=name).get("ReservedConcurrentExecutions")
        asked = values.known_of(properties["ReservedConcurrentExecutions"])
        command = "delete-function-concurrency"
        if asked is not None:
            command = f"put-function-concurrency --reserved-concurrent-executions {asked}"
        remedy = f"aws lambda {command} --function-name {name}"
        stopped = "stopped: 0 may run" if reserved == 0 else None
        shown = stopped or ("none reserved" if reserved is None else f"{reserved} reserved")
        same = reserved == (None if asked is None else int(asked))
        self.judge(same, name, "concurrency", shown, remedy, "fail" if stopped else "warn")

    def triggers(self):
        """Whether everything that calls a function does."""
        functions = self.client("lambda")
        for queue, function in QUEUES.items():
            found = functions.list_event_source_mappings(FunctionName=f"{self.name}-{function}")["EventSourceMappings"]
            ours = [one for one in found if one.get("EventSourceArn") == self.outputs[f"{queue.capitalize()}Arn"]]
            states = ", ".join(one["State"] for one in ours) or "missing"
            enable = "aws lambda update-event-source-mapping --enabled --uuid"
            unfit = f"{enable} {ours[0]['UUID']}" if ours else self.anew("functions")
            self.judge(states == "Enabled", f"{self.name}-{function}", f"takes from {queue}", states, unfit)
        stack = f"{self.name}-functions"
        resources = self.client("cloudformation").describe_stack_resources(StackName=stack)["StackResources"]
        rules = [one["PhysicalResourceId"] for one in resources if one["ResourceType"] == "AWS::Events::Rule"]
        if not rules:
            self.add("fail", f"{self.name}-sweep", "schedule", "missing", self.anew("functions"))
        for rule in rules:
            told = self.client("events").describe_rule(Name=rule)
            self.judge(told["State"] == "ENABLED", f"{self.name}-sweep", "schedule",
                       f"{told['State'].lower()}, {told.get('ScheduleExpression')}", f"aws events enable-rule --name {rule}")

    def queues(self):
        """Whether messages stay hidden long enough, and none was given up."""
        mapped = plan.documents()["queues"]["Mappings"]["Seconds"]
        for queue, function in QUEUES.items():
            try:
                self.queue(queue, function, mapped[queue.capitalize()]["Invisible"])
            except botocore.exceptions.ClientError as error:
                self.add("fail", f"{self.name}-{queue}", "can be looked at", error, self.anew("queues"))

    def queue(self, queue, function, wanted):
        url = self.outputs[f"{queue.capitalize()}Url"]
        told = self.client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        hidden = int(told["VisibilityTimeout"])
        runs = self.client("lambda").get_function_configuration(FunctionName=f"{self.name}-{function}")["Timeout"]
        # A message that comes again while it is worked on is doubled work; one that comes again while it waits counts as failed.
        self.judge(hidden >= wanted, f"{self.name}-{queue}", "visibility timeout",
                   f"{hidden} s, {function} runs for {runs} s" + ("" if hidden >= wanted else f", {wanted} s were deployed"),
                   f"aws sqs set-queue-attributes --queue-url {url} --attributes VisibilityTimeout={wanted}; {BY_HAND}",
                   "warn" if hidden >= runs else "fail")
        redrive = json.loads(told.get("RedrivePolicy", "{}"))
        if not redrive:
            return self.add("fail", f"{self.name}-{queue}", "dead-letter queue", "none", self.anew("queues"))
        self.dead(redrive["deadLetterTargetArn"].split(":")[-1], queue)

    def dead(self, dead, queue):
        sqs = self.client("sqs")
        try:
            url = sqs.get_queue_url(QueueName=dead)["QueueUrl"]
        except sqs.exceptions.QueueDoesNotExist:
            return self.add("fail", f"{self.name}-{queue}", "dead-letter queue", f"{dead} is gone", self.anew("queues"))
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible", "MessageRetentionPeriod"]
        told = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
        waiting = sum(int(told[name]) for name in names[:2])
        if not waiting:
            return self.add("ok", dead, "empty", "0 messages")
        age, kept = self.oldest(dead, url), int(told["MessageRetentionPeriod"]) // DAY
        old = "of unknown age" if age is None else f"the oldest {span(age)} old"
        self.add("fail", dead, "empty", f"{waiting} message{'' if waiting == 1 else 's'}, {old}",
                 f"{REDRIVE}, `{self.name}-{queue}` there; they are kept for {kept} days")

    def oldest(self, dead, url):
        """Age of the oldest message, seconds."""
        now = datetime.datetime.now(datetime.timezone.utc)
        points = self.client("cloudwatch").get_metric_statistics(
            Namespace="AWS/SQS", MetricName="ApproximateAgeOfOldestMessage", Dimensions=[{"Name": "QueueName", "Value": dead}],
            StartTime=now - RECENT, EndTime=now, Period=60, Statistics=["Maximum"],
        )["Datapoints"]
        if points:
            return max(points, key=lambda point: point["Timestamp"])["Maximum"]
        # The metric comes late, and an emulator has none. Looking at messages hides none of them, and nothing counts how
        # often those of a dead-letter queue were received.
        try:
            messages = self.client("sqs").receive_message(
                QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=0, AttributeNames=["SentTimestamp"]
            ).get("Messages", [])
        except botocore.exceptions.ClientError:
            # Those who may only look may not receive: that there are messages is what matters.
            return None
        sent = [int(message["Attributes"]["SentTimestamp"]) / 1000 for message in messages]
        return now.timestamp() - min(sent) if sent else None

    def buckets(self):
        s3 = self.client("s3")
        for output, rules in (("WarehouseBucket", {"aborted-uploads", "claimed-bodies"}), ("CodeBucket", {"aborted-uploads"})):
            bucket = self.outputs[output]
            found = answer(lambda: s3.get_bucket_encryption(Bucket=bucket), "ServerSideEncryptionConfiguration")
            kinds = [r["ApplyServerSideEncryptionByDefault"]["SSEAlgorithm"] for r in (found or {}).get("Rules", [])]
            self.setting(bool(kinds), bucket, "encryption", ", ".join(kinds) or "none",
                         f"s3api put-bucket-encryption --bucket {bucket}")
            found = answer(lambda: s3.get_public_access_block(Bucket=bucket), "PublicAccessBlockConfiguration") or {}
            blocked = sum(found.values())
            self.setting(blocked == 4, bucket, "public access blocked", f"{blocked} of 4 ways",
                         f"s3api put-public-access-block --bucket {bucket}")
            found = answer(lambda: s3.get_bucket_lifecycle_configuration(Bucket=bucket), "Rules") or []
            enabled = {rule["ID"] for rule in found if rule["Status"] == "Enabled"}
            self.setting(rules <= enabled, bucket, "lifecycle", ", ".join(sorted(enabled)) or "none",
                         f"s3api put-bucket-lifecycle-configuration --bucket {bucket}")
            if self.given["storage"].get("RequireTls", "true") == "true":
                found = answer(lambda: s3.get_bucket_policy(Bucket=bucket), "Policy") or ""
                self.setting("aws:SecureTransport" in found, bucket, "refuses plain HTTP", "yes" if found else "no policy",
                         f"s3api put-bucket-policy --bucket {bucket}")

    def tables(self):
        dynamodb = self.client("dynamodb")
        for output in ("StateTable", "CatalogTable"):
            table = self.outputs[output]
            told = dynamodb.describe_table(TableName=table)["Table"]
            self.judge(told["TableStatus"] == "ACTIVE", table, "active", told["TableStatus"].lower(),
                       "wait, or restore it: infra/RUNBOOK.md, Roll back")
            mode = told.get("BillingModeSummary", {}).get("BillingMode", "PROVISIONED")
            self.setting(mode == "PAY_PER_REQUEST", table, "billed by request", mode.lower(),
                         f"dynamodb update-table --table-name {table}")
            found = dynamodb.describe_continuous_backups(TableName=table)["ContinuousBackupsDescription"]
            state = found.get("PointInTimeRecoveryDescription", {}).get("PointInTimeRecoveryStatus", "DISABLED")
            self.setting(state == "ENABLED", table, "point-in-time recovery", state.lower(),
                         f"dynamodb update-continuous-backups --table-name {table}")
            if output == "StateTable":
                found = dynamodb.describe_time_to_live(TableName=table)["TimeToLiveDescription"]
                state = found["TimeToLiveStatus"]
                self.setting(state in ("ENABLED", "ENABLING"), table, "time to live", state.lower(),
                         f"dynamodb update-time-to-live --table-name {table}")

    def alarms(self):
        found = []
        for page in self.client("cloudwatch").get_paginator("describe_alarms").paginate(AlarmNamePrefix=f"{self.name}-"):
            found += page["MetricAlarms"]
        document = template.read("alarms.yaml", (plan.HERE / "alarms.yaml").read_text())
        made = plan.resources(document, template.Values(document, self.given["alarms"]))
        wanted = next(row["count"] for row in made if row["type"] == "AWS::CloudWatch::Alarm")
        ringing = [alarm for alarm in found if alarm["StateValue"] == "ALARM"]
        for alarm in ringing:
            self.add("fail", "alarms", alarm["AlarmName"], alarm.get("StateReason") or "in ALARM", ALARMS)
        shown = f"{len(found)} of {wanted}, {len(ringing)} in ALARM"
        self.judge(len(found) >= wanted, "alarms", "all there", shown, self.anew("alarms"))
        off = [alarm["AlarmName"] for alarm in found if not alarm.get("ActionsEnabled", True)]
        if off:
            self.add("warn", "alarms", "actions enabled", f"off: {', '.join(off)}",
                     f"aws cloudwatch enable-alarm-actions --alarm-names {' '.join(off)}")
        told = self.client("sns").list_subscriptions_by_topic(TopicArn=self.outputs["AlarmTopic"])["Subscriptions"]
        waiting = [one["Endpoint"] for one in told if one["SubscriptionArn"] == "PendingConfirmation"]
        self.judge(told and not waiting, "alarms", "somebody is told",
                   f"not confirmed: {', '.join(waiting)}" if waiting else f"{len(told)} subscriptions",
                   "confirm by the mail" if waiting else f"{self.again}, and --set AlarmEmail=..", "warn")

    def auth(self):
        """Whether every way in asks who comes."""
        gateway, functions = self.client("apigatewayv2"), self.client("lambda")
        routes = gateway.get_routes(ApiId=self.outputs["ApiId"])["Items"]
        tokens = {}
        for function in ("ingest", "control"):
            told = functions.get_function_configuration(FunctionName=f"{self.name}-{function}")
            variables = told.get("Environment", {}).get("Variables", {})
            tokens[function] = [one for one in variables.get("HEADWATER_AUTH_TOKENS", "").split(",") if one.strip()]
        for route in sorted(routes, key=lambda route: route["RouteKey"]):
            key, kind = route["RouteKey"], route.get("AuthorizationType", "NONE")
            if kind != "NONE":
                self.add("ok", "auth", key, kind)
                continue
            function = "ingest" if "/api/ingest/" in key else "control"
            held = tokens[function]
            shown = f"{len(held)} token{'' if len(held) == 1 else 's'}" if held else "open, and no tokens"
            if self.given["http"].get(f"{function.capitalize()}Auth") == "NONE":
                remedy = f"`headwater token` makes one; {self.again}, and --set TokenDigests=DIGEST"
            else:
                ids = f"--api-id {self.outputs['ApiId']} --route-id {route['RouteId']}"
                remedy = f"aws apigatewayv2 update-route {ids} --authorization-type AWS_IAM; {BY_HAND}"
            self.judge(held, "auth", key, shown, remedy)

    def status(self):
        """Whether the API answers us, and not strangers, and what it says of the models."""
        api = Api(self.deployment, self.outputs["ApiId"], self.outputs["ApiUrl"], self.region)
        path = "/api/live/status"
        try:
            code, _ = api.get(path, signed=False)
            self.judge(code in (401, 403), "status", "strangers are refused", code,
                       "anybody reads every table: see auth above")
            code, body = api.get(path, signed=True)
        except OSError as error:
            return self.add("fail", "status", "answers", error, "is there a network between here and the API?")
        if code == 401 and self.given["http"].get("ControlAuth") == "NONE":
            return self.add("warn", "status", "answers", code, f"callers show a token here: ask {path} with yours")
        told = parsed(body) if code == 200 else None
        if told is None:
            said = body.decode(errors="replace")[:200]
            return self.add("fail", "status", "answers", f"{code} {said}",
                            f"403: you need execute-api:Invoke; 5xx: the log /aws/lambda/{self.name}-control")
        models = told["models"]
        self.add("ok", "status", "answers", f"{len(models)} live model{'' if len(models) == 1 else 's'}")
        for model in models:
            self.model(model)

    def model(self, model):
        word, lag = model["status"], span(model["lag_seconds"])
        if word == "failing":
            self.add("fail", "models", model["model"], f"failing {model['consecutive_failures']} times: {model['last_error']}",
                     f"repair it, then {self.again}; the log /aws/lambda/{self.name}-refresh")
        elif word == "paused":
            self.add("warn", "models", model["model"], f"paused, {lag} behind",
                     f"when it may go on: POST /api/live/models/{model['model']}/resume")
        elif not model["fresh"]:
            self.add("warn", "models", model["model"], f"stale: {lag} behind", f"{ALARMS}, `*-waiting`")
        else:
            self.add("ok", "models", model["model"], f"{word}, {lag} behind")


def answer(ask, key):
    """What a bucket has; nothing when it has none."""
    try:
        return ask()[key]
    except botocore.exceptions.ClientError as error:
        # `NoSuchLifecycleConfiguration` and its like; a bucket that is gone is another matter.
        code = error.response["Error"]["Code"]
        if (code.startswith("NoSuch") or code.endswith("NotFoundError")) and code != "NoSuchBucket":
            return None
        raise


def parsed(body):
    try:
        return json.loads(body)
    except ValueError:
        return None


def span(seconds):
    for unit, length in (("days", DAY), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--name", default="headwater", help="what all names begin with (default headwater)")
    parser.add_argument("--region", help="default: the environment's")
    parser.add_argument("--endpoint", help="of an emulator; default: AWS")
    parser.add_argument("--json", action="store_true", help="print the checks as JSON")
    return parser.parse_args()


def main(asked):
    doctor = Doctor(asked)
    doctor.examine()
    counts = {status: sum(check["status"] == status for check in doctor.checks) for status in ("ok", "warn", "fail")}
    if asked.json:
        print(json.dumps({"name": asked.name, "region": doctor.region, **counts, "checks": doctor.checks}, indent=2))
    else:
        for check in doctor.checks:
            print(f"{check['status']:4}  {check['area']}, {check['check']}: {check['found']}  {check['do']}".rstrip())
    sys.exit(1 if counts["fail"] else 0)


if __name__ == "__main__":
    deploy.told("doctor", arguments(), main)
