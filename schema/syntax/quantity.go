package syntax

import (
	"math/big"
	"regexp"
	"strings"
)

// The common forms of Kubernetes quantities: no exponents, no fractions of bytes.
var (
	CPU    = regexp.MustCompile(`^([1-9][0-9]{0,8}m|[1-9][0-9]{0,5}|[0-9]{1,6}\.[0-9]{1,3})$`)
	Memory = regexp.MustCompile(`^[1-9][0-9]{0,17}(k|M|G|T|Ki|Mi|Gi|Ti)?$`)
)

// Amount returns the value of a quantity; nil if text is not a quantity.
func Amount(text string) *big.Rat {
	if !CPU.MatchString(text) && !Memory.MatchString(text) {
		return nil
	}
	units := map[string]*big.Rat{"": big.NewRat(1, 1), "m": big.NewRat(1, 1000)}
	for i, unit := range []string{"k", "M", "G", "T"} {
		units[unit] = new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(1000), big.NewInt(int64(i+1)), nil))
	}
	for i, unit := range []string{"Ki", "Mi", "Gi", "Ti"} {
		units[unit] = new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(1024), big.NewInt(int64(i+1)), nil))
	}
	digits := strings.TrimRight(text, "kmMGTi")
	n, ok := new(big.Rat).SetString(digits)
	if !ok {
		return nil
	}
	return n.Mul(n, units[text[len(digits):]])
}
