package syntax

import (
	"strings"

	"filippo.io/age"
)

// ParseRecipient parses an age recipient: X25519 (age1...), or the hybrid of X25519 and
// ML-KEM-768 (age1pq1...), which also resists quantum computers. Errors may quote the
// text; do not print them, because it may be a misplaced secret.
func ParseRecipient(text string) (age.Recipient, error) {
	if strings.HasPrefix(text, "age1pq1") {
		return age.ParseHybridRecipient(text)
	}
	return age.ParseX25519Recipient(text)
}
