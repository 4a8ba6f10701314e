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
	said := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(e.In).ReadString('\n') // a read error is no consent
		said <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case word := <-said:
		return word == "y" || word == "yes"
	case <-ctx.Done(): // an interrupt only cancels the context
		return false
	}
}
