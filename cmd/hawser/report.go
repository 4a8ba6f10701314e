package main

import (
	"fmt"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/render/plan"
)

// Forms of a plan for those who review it where the topology is kept.
const (
	outMarkdown = "markdown"
	outGitHub   = "github"
	outSARIF    = "sarif"
)

// diffOutputs are the values of -o of hawser diff, with what they are for.
func diffOutputs() []string {
	return []string{"text", "json", "yaml", "manifests\tthe files that change", outMarkdown + "\ta comment of a pull request",
		outGitHub + "\tannotations of its lines", outSARIF + "\tfor code scanning"}
}

// forReview reports whether a form of output is for those who review.
func forReview(format string) bool {
	return format == outMarkdown || format == outGitHub || format == outSARIF
}

// report writes a report in one of the forms for those who review.
func (a *app) report(format string, r plan.Report) error {
	r.Version = version
	write := map[string]func() error{
		outMarkdown: func() error { return r.Markdown(a.out) },
		outGitHub:   func() error { return r.GitHub(a.out) },
		outSARIF:    func() error { return r.SARIF(a.out) },
	}[format]
	if err := write(); err != nil {
		return fmt.Errorf("write %s: %w", format, err)
	}
	return nil
}

// refuseDiff reports the errors that keep a topology from being compared. Where a CI reads
// what is printed, texts of the topology are printed by the form alone, which escapes them.
func (a *app) refuseDiff(format string, list diag.List, t topology) error {
	if !forReview(format) {
		a.printFindings(list, t.files())
	} else if err := a.report(format, plan.Report{Findings: list, File: t.file}); err != nil {
		return err
	}
	return fmt.Errorf("%s has errors: nothing was compared", t.erroneous(list))
}
