package syntax

import (
	"strings"

	"filippo.io/age"
)

// ParseRecipient reads an age recipient: one of X25519 (age1...), or one of X25519
// and ML-KEM-768 together (age1pq1...), whose files stay closed to quantum
// computers. Errors may quote the text, which may be a secret in the wrong place.
func ParseRecipient(text string) (age.Recipient, error) {
	if strings.HasPrefix(text, "age1pq1") {
		return age.ParseHybridRecipient(text)
	}
	return age.ParseX25519Recipient(text)
}
