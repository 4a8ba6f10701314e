package ui

import (
	"embed"
	"io/fs"
	"net/http"
	"path"
	"strconv"
)

//go:embed page
var page embed.FS

const indexFile = "index.html"

// pageFiles returns the names of the page's files except index.html.
func pageFiles() []string {
	entries, err := fs.ReadDir(page, "page")
	if err != nil {
		panic(err) // cannot fail: the files are embedded
	}
	var names []string
	for _, e := range entries {
		if e.Name() != indexFile {
			names = append(names, e.Name())
		}
	}
	return names
}

// serveFile serves one file of the page. No handler serves a path from the request, so no other
// file is accessible.
func serveFile(name string) http.HandlerFunc {
	types := map[string]string{
		".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml",
	}
	raw := []byte(pageFile(name))
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", types[path.Ext(name)])
		w.Header().Set("Content-Length", strconv.Itoa(len(raw)))
		_, _ = w.Write(raw) // ignore a client that disconnected
	}
}
