package planview

import (
	"fmt"

	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/render/plan"
)

// Forms of a plan for those who review it where the topology is kept.
const (
	Markdown = "markdown"
	GitHub   = "github"
)

// ForReview reports whether a form of output is for those who review.
func ForReview(format string) bool {
	return format == Markdown || format == GitHub
}

// PrintReport writes a report in one of the forms for those who review.
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
