// Package namecheck holds the test that enforces the words of docs/style.md and
// docs/glossary.md in the names that the module declares.
package namecheck
