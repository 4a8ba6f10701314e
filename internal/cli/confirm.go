package cli

import (
	"bufio"
	"context"
	"fmt"
	"strings"
)

// Confirm asks a question on the terminal and reports whether the answer is yes. The default is no.
// It returns false if ctx is done.
func (e *Env) Confirm(ctx context.Context, what string) bool {
	_, _ = fmt.Fprint(e.Err, what, " [y/N] ")
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(e.In).ReadString('\n') // a read error is no consent
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case line := <-answer:
		return line == "y" || line == "yes"
	case <-ctx.Done(): // an interrupt only cancels the context
		return false
	}
}
