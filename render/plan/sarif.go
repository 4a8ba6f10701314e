package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"hawser.dev/hawser/internal/diff"
)

// The parts of SARIF 2.1.0 (OASIS) that code scanning reads.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool       sarifTool     `json:"tool"`
		ColumnKind string        `json:"columnKind"`
		Results    []sarifResult `json:"results"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name    string      `json:"name"`
		Version string      `json:"version,omitempty"`
		URI     string      `json:"informationUri"`
		Rules   []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID               string    `json:"id"`
		ShortDescription sarifText `json:"shortDescription"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
	sarifResult struct {
		RuleID       string            `json:"ruleId"`
		RuleIndex    int               `json:"ruleIndex"`
		Level        string            `json:"level"`
		Message      sarifText         `json:"message"`
		Locations    []sarifLocation   `json:"locations"`
		Fingerprints map[string]string `json:"partialFingerprints"`
	}
	sarifLocation struct {
		Physical sarifPhysical `json:"physicalLocation"`
	}
	sarifPhysical struct {
		Artifact sarifArtifact `json:"artifactLocation"`
		Region   sarifRegion   `json:"region"`
	}
	sarifArtifact struct {
		URI string `json:"uri"`
	}
	sarifRegion struct {
		Line   int `json:"startLine"`
		Column int `json:"startColumn,omitempty"`
	}
)

// SARIF writes the findings and the plan as results of a static analysis: a rule for each
// kind of finding and each operation, and the line of the topology for each.
func (r *Report) SARIF(w io.Writer) error {
	remarks := r.remarks()
	run := sarifRun{ColumnKind: "unicodeCodePoints", Results: []sarifResult{}, Tool: sarifTool{Driver: sarifDriver{
		Name: "hawser", Version: clean(r.Version), URI: "https://hawser.dev", Rules: []sarifRule{}}}}
	index := map[string]int{}
	for _, m := range remarks {
		index[m.rule] = 0
	}
	for rule := range index {
		run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, sarifRule{ID: rule, ShortDescription: sarifText{describe(rule)}})
	}
	slices.SortFunc(run.Tool.Driver.Rules, func(a, b sarifRule) int { return strings.Compare(a.ID, b.ID) })
	for i, rule := range run.Tool.Driver.Rules {
		index[rule.ID] = i
	}
	for _, m := range remarks {
		sum := sha256.Sum256([]byte(m.rule + " " + m.key))
		run.Results = append(run.Results, sarifResult{
			RuleID: m.rule, RuleIndex: index[m.rule], Level: m.level, Message: sarifText{unlinked(m.text)},
			Locations: []sarifLocation{{sarifPhysical{
				sarifArtifact{(&url.URL{Path: filepath.ToSlash(filepath.Clean(m.file))}).String()}, sarifRegion{m.line, m.column}}}},
			Fingerprints: map[string]string{"hawser/v1": hex.EncodeToString(sum[:16])},
		})
	}
	raw, err := json.MarshalIndent(sarifLog{
		Schema: "https://json.schemastore.org/sarif-2.1.0.json", Version: "2.1.0", Runs: []sarifRun{run},
	}, "", "  ")
	if err != nil {
		return fmt.Errorf("write SARIF: %w", err)
	}
	_, err = w.Write(append(raw, '\n'))
	return err
}

// describe says what a rule is about.
func describe(rule string) string {
	for _, op := range []diff.Op{diff.Create, diff.Update, diff.Replace, diff.Delete} {
		if rule == ruleOf(op) {
			return "Publishing the topology would " + verb(op) + " this"
		}
	}
	return "The topology has a finding of kind " + rule
}

// unlinked writes a text as a message, in which [text](target) would be a link
// (SARIF 2.1.0, 3.11.6).
func unlinked(text string) string {
	return strings.ReplaceAll(clean(text, '\n'), "](", "] (")
}
