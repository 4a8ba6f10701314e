// Package randtest reads the rounds and the seed of randomised tests from the environment.
package randtest

import (
	"os"
	"strconv"
	"testing"
)

// Rounds returns n times the environment variable ROUNDS. ROUNDS is 1 by default; make fuzz sets it
// to 10.
func Rounds(t testing.TB, n int) int {
	t.Helper()
	factor, set := number(t, "ROUNDS")
	if !set {
		return n
	}
	return n * int(factor)
}

// Seed returns the environment variable SEED, and whether it is set.
func Seed(t testing.TB) (uint64, bool) {
	t.Helper()
	return number(t, "SEED")
}

func number(t testing.TB, name string) (uint64, bool) {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return 0, false
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || n == 0 {
		t.Fatalf("%s=%s: not a number from 1 to 2^32-1", name, text)
	}
	return n, true
}
