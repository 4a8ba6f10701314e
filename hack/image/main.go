// Command image writes a container image as an archive:
//
//	image -o FILE -name NAME:TAG -arch ARCH[,ARCH] -entrypoint /hawser-agent [-label KEY=VALUE] [-charon] [-pin FILE] [-sbom FILE] hawser-agent=dist/hawser-agent ...
//
// Each argument is a file of the image with its source; {arch} in it is replaced by the
// architecture. With several the archive has an index of them, whose digest is printed.
// With -charon strongSwan's charon comes as well, from this machine, with its plugins and
// libraries; the image is for this machine's architecture then, and a label names their
// packages, which must equal the lines of the -pin file. -sbom writes the contents of the image
// as an SBOM. The same files give the same bytes.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"runtime"
	"strings"

	"hawser.dev/hawser/internal/ociimage"
	"hawser.dev/hawser/nodeagent/kernel/ipsec"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	img := ociimage.Image{Labels: map[string]string{}}
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	out := flags.String("o", "", "the archive")
	sbom := flags.String("sbom", "", "what the image is made of, as SPDX 2.3")
	entrypoint := flags.String("entrypoint", "", "the program that a container runs")
	arches := flags.String("arch", runtime.GOARCH, "architectures, as GOARCH has them, with commas")
	pin := flags.String("pin", "", "file of the packages that charon has to be from, NAME=VERSION on each line")
	index := flags.Bool("index", false, "an index of the architectures, be it of one")
	charon := flags.Bool("charon", false, "with this machine's strongSwan, for links of driver ipsec")
	flags.Func("name", "name:tag, any number", func(v string) error {
		img.Names = append(img.Names, v)
		return nil
	})
	flags.Func("label", "key=value, any number", func(v string) error {
		key, value, ok := strings.Cut(v, "=")
		if !ok {
			return fmt.Errorf("%q is not key=value", v)
		}
		img.Labels[key] = value
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *out == "" || len(img.Names) == 0 || flags.NArg() == 0 {
		return fmt.Errorf("usage: image -o FILE -name NAME:TAG PATH=FILE")
	}
	if *entrypoint != "" {
		img.Entrypoint = []string{*entrypoint}
	}
	var images []ociimage.Image
	for _, arch := range strings.Split(*arches, ",") {
		of, err := imageFor(img, arch, flags.Args(), *charon, *pin)
		if err != nil {
			return err
		}
		images = append(images, of)
	}
	if *sbom != "" {
		raw, err := writeSBOM(images...)
		if err != nil {
			return err
		}
		if err := os.WriteFile(*sbom, raw, 0o644); err != nil {
			return err
		}
	}
	var archive bytes.Buffer
	if len(images) > 1 || *index {
		digest, err := ociimage.WriteIndex(&archive, images)
		if err != nil {
			return err
		}
		fmt.Println(digest)
	} else if err := ociimage.Write(&archive, images[0]); err != nil {
		return err
	}
	return os.WriteFile(*out, archive.Bytes(), 0o644)
}

// imageFor returns the image of one architecture, with the files of the command line.
func imageFor(img ociimage.Image, arch string, args []string, charon bool, pin string) (ociimage.Image, error) {
	img.Arch, img.Labels = arch, maps.Clone(img.Labels)
	for _, arg := range args {
		path, source, ok := strings.Cut(arg, "=")
		if !ok {
			return img, fmt.Errorf("%q is not PATH=FILE", arg)
		}
		data, err := os.ReadFile(strings.ReplaceAll(source, "{arch}", arch))
		if err != nil {
			return img, fmt.Errorf("read %s: %w", path, err)
		}
		img.Files = append(img.Files, ociimage.File{Path: path, Mode: 0o755, Data: data})
	}
	if !charon {
		return img, nil
	}
	if err := addCharon(&img); err != nil {
		return img, err
	}
	return img, pinned(strings.Fields(img.Labels[packagesLabel]), pin)
}

// addCharon adds strongSwan's charon from this machine.
func addCharon(img *ociimage.Image) error {
	if img.Arch != runtime.GOARCH {
		return fmt.Errorf("an image for %s with this machine's charon: that is for %s", img.Arch, runtime.GOARCH)
	}
	paths, err := ipsec.Files()
	if err != nil {
		return err
	}
	same := map[string]string{}
	for _, path := range paths {
		same[path] = path
	}
	files, err := ociimage.Programs(same)
	if err != nil {
		return err
	}
	img.Files = append(img.Files, files...)
	from := make([]string, len(files))
	for i, f := range files {
		from[i] = "/" + strings.TrimPrefix(f.Path, "/")
	}
	img.Labels[packagesLabel] = packages(from)
	return nil
}
