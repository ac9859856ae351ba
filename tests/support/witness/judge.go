// judge DIR NOTE OLD KEY...: NOTE is signed by every KEY, its tree is that of the tiles in DIR, every entry is
// included, and the tree of the note OLD is its beginning. By the tlog and note packages of the Go project.
package main

import (
	"bytes"; "crypto/ed25519"; "encoding/base64"; "encoding/binary"; "fmt"; "judge/note"; "judge/tlog"
	"os"; "path/filepath"; "strconv"; "strings"
)

func must[T any](value T, err error) T { if err != nil { fmt.Println(err); os.Exit(1) }; return value }

type tiles string
func (tiles) Height() int { return 8 }
func (tiles) SaveTiles([]tlog.Tile, [][]byte) {}
func (dir tiles) ReadTiles(list []tlog.Tile) (data [][]byte, err error) {
	for _, tile := range list {
		data = append(data, must(os.ReadFile(filepath.Join(string(dir), strings.Replace(tile.Path(), "tile/8/", "tile/", 1)))))
	}
	return data, nil
}

type cosigner struct { name string; hash uint32; key ed25519.PublicKey }
func (c cosigner) Name() string { return c.name }
func (c cosigner) KeyHash() uint32 { return c.hash }
func (c cosigner) Verify(text, sig []byte) bool {
	message := fmt.Sprintf("cosignature/v1\ntime %d\n%s", binary.BigEndian.Uint64(sig), text)
	return ed25519.Verify(c.key, []byte(message), sig[8:])
}

func verifier(vkey string) note.Verifier {
	parts := strings.SplitN(vkey, "+", 3)
	raw := must(base64.StdEncoding.DecodeString(parts[2]))
	if raw[0] == 1 { return must(note.NewVerifier(vkey)) }
	return cosigner{parts[0], uint32(must(strconv.ParseUint(parts[1], 16, 32))), raw[1:]}
}

func tree(text string) tlog.Tree {
	lines := strings.Split(text, "\n")
	return tlog.Tree{N: must(strconv.ParseInt(lines[1], 10, 64)), Hash: must(tlog.ParseHash(lines[2]))}
}

func main() {
	var known []note.Verifier
	for _, vkey := range os.Args[4:] { known = append(known, verifier(vkey)) }
	signed := must(note.Open(must(os.ReadFile(os.Args[2])), note.VerifierList(known...)))
	if len(signed.Sigs) != len(known) { fmt.Println("a signature is missing"); os.Exit(1) }
	head, old := tree(signed.Text), tree(string(must(os.ReadFile(os.Args[3]))))
	hashes := tlog.TileHashReader(head, tiles(os.Args[1]))
	for n := int64(0); n < head.N; n++ {
		tile := tlog.Tile{H: 8, L: 0, N: n / 256, W: int(min(256, head.N-n/256*256))}
		path := strings.Replace(tile.Path(), "tile/8/0/", "tile/entries/", 1)
		bundle := must(os.ReadFile(filepath.Join(os.Args[1], path)))
		entry := bundle[n%256*34+2 : n%256*34+34]
		must(0, tlog.CheckRecord(must(tlog.ProveRecord(head.N, n, hashes)), head.N, head.Hash, n, tlog.RecordHash(entry)))
		if !bytes.Equal(bundle[n%256*34:n%256*34+2], []byte{0, 32}) { fmt.Println("bad length"); os.Exit(1) }
	}
	must(0, tlog.CheckTree(must(tlog.ProveTree(head.N, old.N, hashes)), head.N, head.Hash, old.N, old.Hash))
	fmt.Println(head.N, "entries")
}
