#!/usr/bin/env python3
"""Deploys the stacks of this folder, in order, with the programs and a project.

Needs boto3; `--plan`, which only says what would be created, needs nothing. Every parameter of a template is given the output
of the same name of an earlier stack, or what `--set` says, or its default: the templates say how they fit together, and
nothing here says it again.

    infra/deploy.py --name shop --project path/to/project --programs target/lambda
"""

import argparse
import hashlib
import io
import json
import pathlib
import sys
import time
import zipfile

import plan
from plan import HERE, PROGRAMS, STACKS
from template import Failed

try:
    import boto3
    import botocore.exceptions
    from botocore.config import Config
except ImportError:
    boto3 = None

CAPABILITIES = ["CAPABILITY_IAM", "CAPABILITY_NAMED_IAM", "CAPABILITY_AUTO_EXPAND"]
# Zips have no clock: the same content is the same file, and an unchanged function is not updated.
EPOCH = (1980, 1, 1, 0, 0, 0)


# Codes of answers that mean that nobody let us in.
STRANGER = {"AuthFailure", "ExpiredToken", "ExpiredTokenException", "InvalidClientTokenId", "UnrecognizedClientException"}
# What to do about what boto3 does not find.
ADVICE = {
    "NoRegionError": " Name one with --region, or set AWS_DEFAULT_REGION",
    "NoCredentialsError": "; set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run `aws configure`",
}


class Deployment:
    """A name, an account, and the stacks in it."""

    def __init__(self, name, endpoint=None, region=None, say=print, **credentials):
        if boto3 is None:
            raise Failed("boto3 is missing: pip install boto3")
        session = boto3.session.Session(region_name=region, **credentials)
        path_style = {"addressing_style": "path"} if endpoint else {}
        config = Config(retries={"mode": "standard"}, s3=path_style)
        self.name, self.endpoint, self.say = name, endpoint, say
        self.session = session
        self.client = lambda service: session.client(service, endpoint_url=endpoint, config=config)
        self.cloudformation = self.client("cloudformation")

    def deploy(self, project, programs, settings):
        """Deploys everything; answers the outputs of all stacks."""
        templates = {stack: (HERE / f"{stack}.yaml").read_text() for stack in STACKS}
        asked = {stack: self.parameters(template) for stack, template in templates.items()}
        problems = plan.make(self.name, project, programs, settings)["problems"]
        if problems:
            raise Failed("\n".join(problems))
        outputs, known = {}, dict(settings, Name=self.name)
        for stack in STACKS:
            if stack == "functions":
                known.update(self.upload(outputs["CodeBucket"], zips(project, programs)))
            given = {key: value for key, value in {**outputs, **known}.items() if key in asked[stack]}
            missing = [key for key, default in asked[stack].items() if default is None and key not in given]
            if missing:
                raise Failed(f"{stack}.yaml: nothing gives {', '.join(missing)}")
            outputs.update(self.stack(stack, templates[stack], given))
        return outputs

    def parameters(self, template):
        """Parameters of a template, with their defaults."""
        found = self.cloudformation.validate_template(TemplateBody=template)["Parameters"]
        return {parameter["ParameterKey"]: parameter.get("DefaultValue") for parameter in found}

    def stack(self, stack, template, given):
        """Creates or updates one stack; answers its outputs."""
        started = time.monotonic()
        request = {
            "StackName": f"{self.name}-{stack}",
            "TemplateBody": template,
            "Parameters": [{"ParameterKey": key, "ParameterValue": str(given[key])} for key in sorted(given)],
            "Capabilities": CAPABILITIES,
        }
        done = self.change(request)
        found = self.describe(request["StackName"])
        outputs = {o["OutputKey"]: o["OutputValue"] for o in found.get("Outputs", [])}
        self.say(f"stack {request['StackName']} {done} in {time.monotonic() - started:.1f} s")
        return outputs

    def change(self, request):
        """Carries a stack's change out; answers what was done."""
        name = request["StackName"]
        found = self.describe(name)
        if found and found["StackStatus"] in ("ROLLBACK_COMPLETE", "ROLLBACK_FAILED", "DELETE_FAILED"):
            # The first creation failed: such a stack can only be deleted.
            self.delete_stack(name)
            found = None
        if not found:
            self.cloudformation.create_stack(**request, OnFailure="ROLLBACK")
            self.settle(name, {"CREATE_COMPLETE"})
            return "created"
        try:
            self.cloudformation.update_stack(**request)
        except botocore.exceptions.ClientError as error:
            if "No updates are to be performed" in str(error):
                return "unchanged"
            raise
        self.settle(name, {"UPDATE_COMPLETE"})
        return "updated"

    def settle(self, name, wanted):
        """Waits until nothing of a stack is in progress."""
        while True:
            found = self.describe(name)
            status = found["StackStatus"] if found else "DELETE_COMPLETE"
            if status in wanted:
                return
            if not status.endswith("_IN_PROGRESS"):
                raise Failed(f"stack {name} is {status}: {self.why(found or {'StackName': name})}")
            time.sleep(0.3 if self.endpoint else 3)

    def why(self, found):
        """Reasons of the resources that failed, the first first."""
        name = found.get("StackId", found["StackName"])
        events = self.cloudformation.describe_stack_events(StackName=name)["StackEvents"]
        failed = [event for event in reversed(events) if event["ResourceStatus"].endswith("_FAILED")]
        reasons = [f"{e['LogicalResourceId']}: {e.get('ResourceStatusReason', 'no reason')}" for e in failed]
        return "; ".join(reasons[:3]) or found.get("StackStatusReason", "no reason is given")

    def describe(self, name):
        """A stack as it stands, or nothing."""
        try:
            return self.cloudformation.describe_stacks(StackName=name)["Stacks"][0]
        except botocore.exceptions.ClientError as error:
            if "does not exist" in str(error):
                return None
            raise

    def upload(self, bucket, packed):
        """Puts zips where functions are made from; answers their keys by template parameter."""
        s3, keys = self.client("s3"), {}
        for parameter, (program, content) in packed.items():
            key = f"{program}/{hashlib.sha256(content).hexdigest()[:32]}.zip"
            keys[parameter] = key
            if s3.list_objects_v2(Bucket=bucket, Prefix=key)["KeyCount"]:
                continue
            s3.upload_fileobj(io.BytesIO(content), bucket, key)
            self.say(f"uploaded {program} ({len(content) / 1e6:.1f} MB zipped)")
        return keys

    def delete_stack(self, name):
        """Deletes one stack; what it is told to retain stays."""
        found = self.describe(name)
        if found:
            self.cloudformation.delete_stack(StackName=name)
            self.settle(found["StackId"], {"DELETE_COMPLETE"})
            self.say(f"stack {name} deleted")

    def delete(self):
        """Deletes all stacks, the last first."""
        for stack in reversed(STACKS):
            self.delete_stack(f"{self.name}-{stack}")


def zips(project, programs):
    """Zips by template parameter: the program as `bootstrap`, and the project beside it."""
    project, files, packed = pathlib.Path(project), plan.project_files(project), {}
    for parameter, program in PROGRAMS.items():
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
            entry(archive, "bootstrap", plan.program(programs, program).read_bytes(), 0o755)
            for file in files:
                entry(archive, f"project/{file.relative_to(project).as_posix()}", file.read_bytes(), 0o644)
        packed[parameter] = (program, buffer.getvalue())
    return packed


def entry(archive, name, content, mode):
    info = zipfile.ZipInfo(name, EPOCH)
    info.external_attr, info.compress_type = (0o100000 | mode) << 16, zipfile.ZIP_DEFLATED
    archive.writestr(info, content)


def setting(text):
    key, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"`{text}` is no Key=Value")
    return key, value


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--name", default="headwater", help="what all names begin with (default headwater)")
    parser.add_argument("--project", default=".", help="folder with headwater.yml and transform/ (default .)")
    parser.add_argument("--programs", default="target/lambda", help="folder of the programs (default target/lambda)")
    parser.add_argument("--set", type=setting, action="append", default=[], metavar="KEY=VALUE", help="a template's parameter")
    parser.add_argument("--region", help="default: the environment's")
    parser.add_argument("--endpoint", help="of an emulator; default: AWS")
    parser.add_argument("--plan", action="store_true", help="print what would be created, as JSON, and ask AWS nothing")
    parser.add_argument("--delete", action="store_true", help="delete the stacks; buckets and tables stay")
    parser.add_argument("--json", action="store_true", help="print the outputs as JSON, progress to the error stream")
    return parser.parse_args()


def main(asked):
    settings = dict(asked.set)
    if (asked.endpoint or "").startswith("http://"):
        # An emulator: functions must find it, and it cannot be asked for encryption.
        settings = {"RequireTls": "false", "Endpoint": asked.endpoint, **settings}
    if asked.plan:
        return print(json.dumps(plan.make(asked.name, asked.project, asked.programs, settings), indent=2))
    say = lambda line: print(line, file=sys.stderr if asked.json else sys.stdout, flush=True)
    deployment = Deployment(asked.name, asked.endpoint, asked.region, say)
    if asked.delete:
        return deployment.delete()
    outputs = deployment.deploy(asked.project, asked.programs, settings)
    print(json.dumps(outputs, indent=2) if asked.json else f"the API is at {outputs['ApiUrl']}")


def told(name, asked, run):
    """Runs a script; ends it with 1 for what a person can repair, and 3 when AWS cannot be reached."""
    aws = (botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError) if boto3 else ()
    try:
        return run(asked)
    except KeyboardInterrupt:
        code, why = 1, "stopped; what AWS has begun it carries on with"
    except Failed as error:
        code, why = 3 if boto3 is None else 1, str(error)
    except aws as error:
        answered = isinstance(error, botocore.exceptions.ClientError)
        code = 1 if answered and error.response.get("Error", {}).get("Code") not in STRANGER else 3
        why = f"AWS cannot be reached: {error}" if code == 3 else str(error)
        why += ADVICE.get(type(error).__name__, "")
    if asked.json:
        print(json.dumps({"error": why}))
    else:
        print(f"{name}: {why}", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    told("deploy", arguments(), main)
