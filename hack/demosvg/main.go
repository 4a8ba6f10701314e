// Command picture runs the demo and records what it writes as docs/demo.svg. make picture
// runs it.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"time"

	"hawser.dev/hawser/internal/atomicfile"
	"hawser.dev/hawser/internal/termsvg"
)

const (
	script  = "hack/demo.sh"
	picture = "docs/demo.svg"
)

func main() {
	if err := record(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// demoDir matches the directory of the demo, which has another name in each run.
var demoDir = regexp.MustCompile(`/tmp/hwdemo-[A-Za-z0-9]+`)

func record() error {
	text, err := os.ReadFile(script)
	if err != nil {
		return fmt.Errorf("run it where hack is: %w", err)
	}
	read, write := io.Pipe()
	cmd := exec.Command(script)
	cmd.Stdout, cmd.Stderr = write, write
	startedAt := time.Now()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("run %s: %w", script, err)
	}
	ended := make(chan error, 1)
	go func() {
		err := cmd.Wait()
		_ = write.Close()
		ended <- err
	}()
	var lines []termsvg.Line
	scanner := bufio.NewScanner(read)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		line := demoDir.ReplaceAllString(scanner.Text(), "/tmp/hwdemo")
		fmt.Println(line)
		lines = append(lines, termsvg.Line{At: time.Since(startedAt), Text: line})
	}
	if err := errors.Join(scanner.Err(), <-ended); err != nil {
		return fmt.Errorf("%s failed, so there is no picture of it: %w", script, err)
	}
	drawn := termsvg.SVG("make demo", lines)
	if step := termsvg.MissingStep(termsvg.ScriptSteps(string(text)), termsvg.PictureSteps(drawn)); step != "" {
		return fmt.Errorf("the output of %s lacks the step %q", script, step)
	}
	if err := atomicfile.Replace(picture, []byte(drawn), 0o644); err != nil {
		return err
	}
	fmt.Printf("%s: %d lines\n", picture, len(lines))
	return nil
}
