package planview

import (
	"fmt"

	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/render/plan"
)

// Output formats of a plan for reviewers on a code hosting platform.
const (
	Markdown = "markdown"
	GitHub   = "github"
)

// ForReview reports whether an output format is for reviewers.
func ForReview(format string) bool {
	return format == Markdown || format == GitHub
}

// PrintReport writes a report in a format for reviewers.
func PrintReport(env *cli.Env, format string, r plan.Report) error {
	write := map[string]func() error{
		Markdown: func() error { return r.Markdown(env.Out) },
		GitHub:   func() error { return r.GitHub(env.Out) },
	}[format]
	if err := write(); err != nil {
		return fmt.Errorf("write %s: %w", format, err)
	}
	return nil
}
