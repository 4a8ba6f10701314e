package main

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"hawser.dev/hawser/internal/ociimage"
)

// spdxPackage is one part of an image, as SPDX 2.3 has it.
type spdxPackage struct {
	ID       string    `json:"SPDXID"`
	Name     string    `json:"name"`
	Version  string    `json:"versionInfo"`
	Location string    `json:"downloadLocation"`
	Analyzed bool      `json:"filesAnalyzed"`
	Refs     []spdxRef `json:"externalRefs,omitempty"`
}

// spdxRef names a package as scanners do.
type spdxRef struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

// writeSBOM writes the components of the images of one name in the format of SPDX 2.3: Go itself
// and the modules of each Go program, and the Debian packages of packagesLabel. Equal images
// make equal bytes, so the time in it is constant.
func writeSBOM(images ...ociimage.Image) ([]byte, error) {
	seen := map[string]bool{}
	parts := []spdxPackage{}
	add := func(name, version, purl string) {
		key := name + "@" + version
		if seen[key] {
			return
		}
		seen[key] = true
		p := spdxPackage{ID: fmt.Sprintf("SPDXRef-%d", len(parts)), Name: name, Version: version, Location: "NOASSERTION"}
		if purl != "" {
			p.Refs = []spdxRef{{"PACKAGE-MANAGER", "purl", purl + "@" + version}}
		}
		parts = append(parts, p)
	}
	for _, img := range images {
		for _, f := range img.Files {
			info, err := buildinfo.Read(bytes.NewReader(f.Data))
			if err != nil {
				continue // no program of Go
			}
			add("stdlib", strings.TrimPrefix(info.GoVersion, "go"), "pkg:golang/stdlib")
			add(info.Main.Path, img.Labels["org.opencontainers.image.version"], "")
			for _, m := range info.Deps {
				if m.Replace != nil {
					m = m.Replace
				}
				add(m.Path, m.Version, "pkg:golang/"+m.Path)
			}
		}
		for _, from := range strings.Fields(img.Labels[packagesLabel]) {
			name, version, _ := strings.Cut(from, "=")
			purl := "pkg:deb/debian/" + name
			if version == "" {
				purl = "" // a file that belongs to no package
			}
			add(name, version, purl)
		}
	}
	if len(parts) == 0 {
		return nil, fmt.Errorf("image %s holds nothing that is known", strings.Join(images[0].Names, ", "))
	}
	describes := []map[string]string{}
	for _, p := range parts {
		describes = append(describes, map[string]string{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": p.ID})
	}
	names := slices.Sorted(slices.Values(images[0].Names))
	arches := make([]string, len(images))
	for i, img := range images {
		arches[i] = img.Arch
	}
	return json.MarshalIndent(map[string]any{
		"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",
		"name": path.Base(names[0]), "documentNamespace": "https://hawser.dev/sbom/" + names[0] + "/" + strings.Join(arches, "-"),
		"creationInfo": map[string]any{"created": "1970-01-01T00:00:00Z", "creators": []string{"Tool: hawser-image"}},
		"packages":     parts, "relationships": describes,
	}, "", "  ")
}
