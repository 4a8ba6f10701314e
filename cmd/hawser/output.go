package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// checkOutput refuses a value of -o that a command does not have.
func checkOutput(have string, allowed ...string) error {
	if slices.Contains(allowed, have) {
		return nil
	}
	return fmt.Errorf("-o %q: it is %s", have, strings.Join(allowed, ", "))
}

// encode writes v as -o json or -o yaml asks.
func (a *app) encode(format string, v any) error {
	var raw []byte
	var err error
	if format == "yaml" {
		raw, err = yaml.Marshal(v)
	} else {
		raw, err = json.MarshalIndent(v, "", "  ")
		raw = append(raw, '\n')
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", format, err)
	}
	_, err = a.out.Write(raw)
	return err
}
