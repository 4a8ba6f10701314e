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

// pageFiles are the names of what the page is made of, but for its beginning.
func pageFiles() []string {
	entries, err := fs.ReadDir(page, "page")
	if err != nil {
		panic(err) // it is built in
	}
	var names []string
	for _, e := range entries {
		if e.Name() != indexFile {
			names = append(names, e.Name())
		}
	}
	return names
}

// serveFile serves one file of the page. There is no other way to its files, and so none to
// others.
func serveFile(name string) http.HandlerFunc {
	types := map[string]string{
		".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml",
	}
	raw := []byte(pageFile(name))
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", types[path.Ext(name)])
		w.Header().Set("Content-Length", strconv.Itoa(len(raw)))
		_, _ = w.Write(raw) // a browser that went away needs nothing
	}
}
