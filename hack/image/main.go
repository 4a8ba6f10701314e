// Command image writes a container image as an archive:
//
//	image -o FILE -name NAME:TAG -arch ARCH -entrypoint /hawser-agent [-label KEY=VALUE] hawser-agent=dist/hawser-agent ...
//
// Each argument is a file of the image and where it is now. The same files give the
// same bytes.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"

	"hawser.dev/hawser/internal/image"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	img := image.Image{Labels: map[string]string{}}
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	out := flags.String("o", "", "the archive")
	entrypoint := flags.String("entrypoint", "", "the program that a container runs")
	flags.StringVar(&img.Arch, "arch", runtime.GOARCH, "architecture, as GOARCH has it")
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
	for _, arg := range flags.Args() {
		path, source, ok := strings.Cut(arg, "=")
		if !ok {
			return fmt.Errorf("%q is not PATH=FILE", arg)
		}
		data, err := os.ReadFile(source)
		if err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		img.Files = append(img.Files, image.File{Path: path, Mode: 0o755, Data: data})
	}
	var archive bytes.Buffer
	if err := image.Write(&archive, img); err != nil {
		return err
	}
	return os.WriteFile(*out, archive.Bytes(), 0o644)
}
