package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"hawser.dev/hawser/internal/ociimage"
	"hawser.dev/hawser/nodeagent/kernel/ipsec"
)

// AgentImage is the name of the agent's image in the lab, for `hawser render --image`.
const AgentImage = "hawser.dev/hawser-agent:lab"

// build compiles static programs into a directory. programs are paths below the repository.
func build(dir string, programs ...string) error {
	for _, program := range programs {
		name := path.Base(program)
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(dir, name), "hawser.dev/hawser/"+program)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w: %s", name, err, strings.TrimSpace(string(out)))
		}
	}
	return nil
}

// writeImages writes the archives of all images and returns their paths. agent is the path of a
// built program. If it is empty, writeImages builds the agent of the tree.
func (l *Lab) writeImages(agent string) ([]string, error) {
	dir := l.path("images", "programs")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make directory of images: %w", err)
	}
	// The tools include hawser-traffic.
	if err := build(dir, "e2e/kube/pause", "e2e/kube/whereami", "e2e/traffic/hawser-traffic"); err != nil {
		return nil, err
	}
	tools, err := toolFiles()
	if err != nil {
		return nil, err
	}
	traffic, err := os.ReadFile(filepath.Join(dir, "hawser-traffic"))
	if err != nil {
		return nil, fmt.Errorf("tools image: %w", err)
	}
	tools = append(tools, ociimage.File{Path: "bin/hawser-traffic", Mode: 0o755, Data: traffic})
	one := func(name, tag, source string) (string, error) {
		data, err := os.ReadFile(source)
		if err != nil {
			return "", fmt.Errorf("read %s: %w", name, err)
		}
		return l.writeImage(name, ociimage.Image{Names: []string{tag}, Entrypoint: []string{"/" + name},
			Files: []ociimage.File{{Path: name, Mode: 0o755, Data: data}}})
	}
	var out []string
	var errs []error
	written := func(path string, err error) { out, errs = append(out, path), append(errs, err) }
	written(one("pause", "docker.io/hawser/pause:lab", filepath.Join(dir, "pause")))
	written(l.writeAgent(agent))
	written(one("coredns", "docker.io/hawser/coredns:lab", filepath.Join(l.Bin, "coredns")))
	written(one("whereami", "docker.io/library/whereami:lab", filepath.Join(dir, "whereami")))
	// The tests of the Multi-Cluster Services API use these names.
	written(l.writeImage("tools", ociimage.Image{Files: tools, Cmd: []string{"/bin/sh"}, Names: []string{
		"docker.io/hawser/tools:lab", "docker.io/alpine/socat:1.7.4.4", "docker.io/nicolaka/netshoot:v0.15"}}))
	return out, errors.Join(append(errs, os.RemoveAll(dir))...)
}

// fillStore imports the images into images/lib, which new nodes link instead of importing the same
// images themselves. It removes the archives.
func (l *Lab) fillStore(ctx context.Context) error {
	script, err := files.ReadFile("images.sh")
	if err == nil {
		err = os.WriteFile(l.path("images", "images.sh"), script, 0o755)
	}
	if err != nil {
		return fmt.Errorf("write images.sh: %w", err)
	}
	fill := exec.CommandContext(ctx, "unshare", "--mount", "--mount-proc", "--pid", "--fork", "--kill-child",
		"/bin/bash", l.path("images", "images.sh"))
	fill.Env = append(os.Environ(), l.environmentMark(), "DIR="+l.path("images"), "IMAGES="+strings.Join(l.Images, " "))
	if out, err := fill.CombinedOutput(); err != nil {
		return fmt.Errorf("import images: %w: %s", err, out)
	}
	var errs []error
	for _, archive := range l.Images {
		errs = append(errs, os.Remove(archive))
	}
	return errors.Join(errs...)
}

// writeAgent writes the image of the agent like make image IPSEC=1, and returns its path. agent is
// the path of a built program. If it is empty, writeAgent builds the agent of the tree.
func (l *Lab) writeAgent(agent string) (string, error) {
	if agent == "" {
		agent = l.path("images", "hawser-agent")
		if err := build(filepath.Dir(agent), "cmd/hawser-agent"); err != nil {
			return "", err
		}
		defer func() { _ = os.Remove(agent) }()
	}
	programs := map[string]string{agent: "/hawser-agent"}
	charon, err := ipsec.Files()
	if err != nil {
		return "", fmt.Errorf("agent image: %w (hack/setup.sh)", err)
	}
	for _, path := range charon {
		programs[path] = path
	}
	files, err := ociimage.Programs(programs)
	if err != nil {
		return "", fmt.Errorf("agent image: %w", err)
	}
	return l.writeImage("hawser-agent", ociimage.Image{Names: []string{AgentImage}, Entrypoint: []string{"/hawser-agent"}, Files: files})
}

// writeImage writes an archive and returns its path.
func (l *Lab) writeImage(name string, img ociimage.Image) (string, error) {
	img.Arch = runtime.GOARCH
	var archive bytes.Buffer
	if err := ociimage.Write(&archive, img); err != nil {
		return "", fmt.Errorf("image %s: %w", name, err)
	}
	path := l.path("images", name+".tar")
	if err := os.WriteFile(path, archive.Bytes(), 0o644); err != nil {
		return "", fmt.Errorf("write image %s: %w", name, err)
	}
	return path, nil
}

// toolFiles returns the files of a small Linux system: a shell, busybox and network clients of this
// machine, each with its libraries.
func toolFiles() ([]ociimage.File, error) {
	files := []ociimage.File{
		{Path: "etc/passwd", Mode: 0o644, Data: []byte("root:x:0:0:root:/root:/bin/sh\n")},
		{Path: "etc/nsswitch.conf", Mode: 0o644, Data: []byte("hosts: files dns\n")},
		{Path: "tmp", Mode: 0o1777}, {Path: "root", Mode: 0o700},
	}
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		return nil, fmt.Errorf("tools image: %w (hack/setup-kube.sh)", err)
	}
	applets, err := exec.Command(busybox, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("tools image: list busybox: %w", err)
	}
	have, programs := map[string]bool{}, map[string]string{}
	// Debian's busybox as sh runs its own nc and nslookup instead of those in PATH, so sh is dash.
	for name, from := range map[string]string{"busybox": "busybox", "sh": "dash", "socat": "socat", "nc": "nc.openbsd",
		"nslookup": "nslookup", "dig": "dig", "curl": "curl", "ip": "ip", "ping": "ping"} {
		at, err := exec.LookPath(from)
		if err != nil {
			return nil, fmt.Errorf("tools image: %w (hack/setup-kube.sh)", err)
		}
		programs[at], have[name] = "/bin/"+name, true
	}
	found, err := ociimage.Programs(programs)
	if err != nil {
		return nil, fmt.Errorf("tools image: %w", err)
	}
	files = append(files, found...)
	for applet := range strings.FieldsSeq(string(applets)) {
		if !have[applet] {
			files = append(files, ociimage.File{Path: "bin/" + applet, Mode: 0o777, Link: "busybox"})
		}
	}
	slices.SortFunc(files, func(a, b ociimage.File) int { return strings.Compare(a.Path, b.Path) })
	return files, nil
}
