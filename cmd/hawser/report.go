package main

import (
	"fmt"

	"hawser.dev/hawser/render/plan"
)

// Forms of a plan for those who review it where the topology is kept.
const (
	outMarkdown = "markdown"
	outGitHub   = "github"
)

// forReview reports whether a form of output is for those who review.
func forReview(format string) bool {
	return format == outMarkdown || format == outGitHub
}

// report writes a report in one of the forms for those who review.
func (a *app) report(format string, r plan.Report) error {
	write := map[string]func() error{
		outMarkdown: func() error { return r.Markdown(a.out) },
		outGitHub:   func() error { return r.GitHub(a.out) },
	}[format]
	if err := write(); err != nil {
		return fmt.Errorf("write %s: %w", format, err)
	}
	return nil
}
