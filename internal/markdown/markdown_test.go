package markdown_test

import (
	"strings"
	"testing"

	"hawser.dev/hawser/internal/markdown"
)

func TestItem(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 120)
	eleven := strings.Repeat("nine4567é ", 9)
	tests := []struct{ name, text, want string }{
		{"short", "  one\n two ", "- one two\n"},
		{"nothing", "", "- \n"},
		{"as long as a line may be", eleven + "12345678", "- " + eleven + "12345678\n"},
		{"one longer", eleven + "123456789", "- " + strings.TrimSpace(eleven) + "\n  123456789\n"},
		{"a word longer than a line", "a " + long + " b", "- a\n  " + long + "\n  b\n"},
		{"no list within", eleven + "1234567 - 2. b", "- " + strings.TrimSpace(eleven) + "\n  1234567 - 2. b\n"},
		{"no heading within", eleven + "1234567 ## b", "- " + strings.TrimSpace(eleven) + "\n  1234567 ## b\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := markdown.Item(tt.text); got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}
