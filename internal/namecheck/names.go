// Package namecheck contains the test that enforces the vocabulary of docs/style.md and
// docs/glossary.md in the names that the module declares.
package namecheck
