#!/usr/bin/env python3
"""Manifests of packaging/kubernetes/ beside the published schemas, and beside the program.

    kubernetes_test.py PROGRAM [TEST...]

Schemas of Kubernetes are those of the package kubernetes-validate, which ./dev cluster-test
kubernetes fetches.
"""
from __future__ import annotations

import http.client
import re
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import yaml

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "packaging" / "kubernetes"
PROGRAM = sys.argv[1]
#: Oldest and newest version whose schemas the manifests follow: "sleep" of preStop came with 1.29.
VERSIONS = ("1.30.0", kubernetes_validate.latest_version())
#: Names of the LeaderWorkerSets.
GROUPS = ("subbyte-ray", "subbyte-mpi")


def manifests() -> Iterator[tuple[str, dict[str, Any]]]:
    for file in sorted(FOLDER.glob("*.yaml")):
        for manifest in yaml.safe_load_all(file.read_text()):
            yield f"{file.name} {manifest['kind']}", manifest


def of_kind(kind: str, name: str = "subbyte") -> dict[str, Any]:
    [found] = [manifest for _, manifest in manifests()
               if manifest["kind"] == kind and manifest["metadata"]["name"] == name]
    return found


def containers() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Name, specification of the pod and container, of all pods."""
    for name, manifest in manifests():
        templates = [manifest["spec"].get("template")]
        templates += manifest["spec"].get("leaderWorkerTemplate", {}).values()
        for template in templates:
            if isinstance(template, dict) and "spec" in template:
                for container in template["spec"]["containers"]:
                    yield name, template["spec"], container


class Schemas(unittest.TestCase):
    def test_kinds_of_kubernetes(self) -> None:
        compared = 0
        for name, manifest in manifests():
            if "leaderworkerset" in manifest["apiVersion"]:
                continue
            for version in VERSIONS:
                with self.subTest(name, version=version):
                    kubernetes_validate.validate(manifest, version, strict=True)
                    compared += 1
        self.assertGreaterEqual(compared, 8)

    def test_groups_of_leaders_and_workers(self) -> None:
        """Its own fields by hand, as its project publishes them in the definition of the kind
        alone; pods by the schema of Kubernetes."""
        for name in GROUPS:
            with self.subTest(name):
                self.look_at_group(of_kind("LeaderWorkerSet", name))

    def look_at_group(self, group: dict[str, Any]) -> None:
        self.assertEqual(group["apiVersion"], "leaderworkerset.x-k8s.io/v1")
        self.assertEqual(set(group["spec"]), {"replicas", "leaderWorkerTemplate"})
        templates = dict(group["spec"]["leaderWorkerTemplate"])
        self.assertIn(templates.pop("restartPolicy"),
                      {"None", "RecreateGroupOnPodRestart", "RecreateGroupAfterStart"})
        self.assertGreater(templates.pop("size"), 1)
        self.assertEqual(set(templates), {"leaderTemplate", "workerTemplate"})
        for name, template in templates.items():
            pod = {"apiVersion": "v1", "kind": "PodTemplate",
                   "metadata": {"name": name.lower()}, "template": template}
            for version in VERSIONS:
                kubernetes_validate.validate(pod, version, strict=True)

    def test_a_mistake_is_seen(self) -> None:
        manifest = of_kind("Deployment")
        manifest["spec"]["template"]["spec"]["containers"][0]["readinesProbe"] = {}
        with self.assertRaises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(manifest, VERSIONS[1], strict=True)


class Program(unittest.TestCase):
    """What the manifests say of it."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.help = subprocess.run([PROGRAM, "serve", "--help"], capture_output=True, text=True,
                                  check=True).stdout

    def test_options_are_there(self) -> None:
        compared = 0
        for name, _, container in containers():
            words = " ".join(container.get("args", []))
            if container["command"] != ["subbyte"]:  # that has them at the end
                words = words.partition(" -- " if "subbyte.ray" in words else " subbyte serve ")[2]
            for option in re.findall(r"--[a-z-]+", words):
                with self.subTest(name, option=option):
                    self.assertRegex(self.help, rf"(?m)(?<![\w-]){option}(?![\w-])")
                    compared += 1
        self.assertGreaterEqual(compared, 8)

    def test_options_of_the_command_on_ray_are_there(self) -> None:
        [words] = [" ".join(container["args"]) for _, _, container in containers()
                   if container["name"] == "leader"]
        options = words.partition("subbyte.ray serve")[2].partition(" -- ")[0]
        source = (ROOT / "python/subbyte/ray/__main__.py").read_text()
        source += (ROOT / "python/subbyte/ray/_serving.py").read_text()
        for option in re.findall(r"--([a-z-]+)", options):
            name = option.replace("-", "_")
            self.assertRegex(source, rf'"--{option}"|\n    {name}: ')

    def test_ports_and_labels_meet(self) -> None:
        deployment, service = of_kind("Deployment"), of_kind("Service")
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        self.assertEqual(deployment["spec"]["selector"]["matchLabels"], labels)
        self.assertEqual(service["spec"]["selector"], labels)
        self.assertEqual(of_kind("PodDisruptionBudget")["spec"]["selector"]["matchLabels"], labels)
        self.assertEqual(of_kind("HorizontalPodAutoscaler")["spec"]["scaleTargetRef"]["name"],
                         deployment["metadata"]["name"])
        for name, pod, container in containers():
            ports = {port["name"] for port in container.get("ports", [])}
            volumes = {volume["name"] for volume in pod.get("volumes", [])}
            for probe in ("readinessProbe", "livenessProbe"):
                if probe in container:
                    self.assertIn(container[probe]["httpGet"]["port"], ports, name)
            for mount in container.get("volumeMounts", []):
                self.assertIn(mount["name"], volumes, name)
        self.assertEqual(service["spec"]["ports"][0]["targetPort"], "http")
        for name in GROUPS:  # whose own name has the Service of its pods, which the operator makes
            service = of_kind("Service", f"{name}-http")
            group = of_kind("LeaderWorkerSet", name)["spec"]["leaderWorkerTemplate"]
            self.assertEqual(service["spec"]["ports"][0]["targetPort"], "http")
            self.assertEqual(service["spec"]["selector"],
                             group["leaderTemplate"]["metadata"]["labels"])

    def test_a_pod_has_time_to_end(self) -> None:
        for name, pod, container in containers():
            timeout = re.search(r"--shutdown-timeout=(\d+)", " ".join(container.get("args", [])))
            if timeout:
                sleep = container["lifecycle"]["preStop"]["sleep"]["seconds"]
                self.assertGreater(pod["terminationGracePeriodSeconds"], sleep + int(timeout[1]),
                                   name)

    def test_a_server_has_the_paths_and_the_metric(self) -> None:
        """With the arguments of the Deployment, but for the model, its keys and the port."""
        [arguments] = [container["args"] for name, _, container in containers()
                       if "Deployment" in name]
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([PROGRAM, "synth", "--shape", "tiny", f"{folder}/model", "-q"],
                           check=True)
            Path(folder, "keys").write_text("secret\n")
            there = [word.replace("/models/", f"{folder}/").replace("/keys/", f"{folder}/")
                     for word in arguments if not word.startswith("--port")]
            process = subprocess.Popen([PROGRAM, *there, "--port", "0", "--device", "cpu"],
                                       stderr=subprocess.PIPE, text=True)
            try:
                self.look_at(process)
            finally:
                process.terminate()
                process.wait()
                process.stderr.close()

    def look_at(self, process: subprocess.Popen[str]) -> None:
        found = None
        while not found:
            line = process.stderr.readline()
            self.assertTrue(line, "the server did not start")
            found = re.search(r"ready on http://\S+:(\d+)", line)

        def get(path: str, **headers: str) -> tuple[int, str]:
            connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=60)
            connection.request("GET", path, headers={"Host": "10.0.0.7:8000", **headers})
            response = connection.getresponse()
            text = response.read().decode()
            connection.close()
            return response.status, text

        for _, _, container in containers():
            for probe in ("readinessProbe", "livenessProbe"):
                if probe in container:
                    self.assertEqual(get(container[probe]["httpGet"]["path"])[0], 200)
        [metric] = of_kind("HorizontalPodAutoscaler")["spec"]["metrics"]
        name = metric["pods"]["metric"]["name"].replace("_", ":", 1)
        self.assertRegex(get("/metrics", Authorization="Bearer secret")[1], rf"(?m)^{name}\b")
        self.assertIn(f'"{name}"', (FOLDER / "autoscaler.yaml").read_text())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
