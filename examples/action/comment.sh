#!/usr/bin/env bash
# Write a Markdown file as the one comment about a model on a pull request; the comment of an earlier run is replaced.
#
#   comment.sh MODEL PULL_REQUEST FILE
#
# The token in GITHUB_TOKEN needs the permission to write comments. Without it a warning is printed: the job's summary
# has the text, and a comment decides nothing. Needs curl and jq, which GitHub's runners have.
set -euo pipefail

model=$1 pull_request=$2 file=$3
MARK="<!-- onnxreg: $model -->"
MAX_CHARACTERS=65000 # GitHub takes 65,536
PER_PAGE=100
issues="$GITHUB_API_URL/repos/$GITHUB_REPOSITORY/issues"

# The token goes through a pipe: the list of processes shows arguments.
api() {
    curl --silent --show-error --fail --max-time 60 \
        --header @<(printf 'Authorization: Bearer %s\n' "$GITHUB_TOKEN") \
        --header 'Accept: application/vnd.github+json' "$@"
}

# The number of the comment that begins with the mark. Only programs' comments: a person could edit their own later.
find_comment() {
    local page=1 comments
    while :; do
        comments=$(api --retry 3 "$issues/$pull_request/comments?per_page=$PER_PAGE&page=$page") || return
        jq --raw-output --arg mark "$MARK" \
            'map(select(.user.type == "Bot" and (.body | startswith($mark)))) | first.id // empty' <<< "$comments"
        if [ "$(jq length <<< "$comments")" -lt "$PER_PAGE" ]; then return; fi
        page=$((page + 1))
    done
}

write_comment() {
    local numbers body
    numbers=$(find_comment) || return
    body=$(jq --null-input --rawfile text "$file" --arg mark "$MARK" --argjson most "$MAX_CHARACTERS" \
        '{body: ($mark + "\n" + if ($text | length) > $most
            then $text[:$most] + "\n\n...\n\nThe summary of the run has the rest." else $text end)}') || return
    if [ -n "$numbers" ]; then
        api --request PATCH --data @- "$issues/comments/${numbers%%$'\n'*}" <<< "$body"
    else
        api --request POST --data @- "$issues/$pull_request/comments" <<< "$body"
    fi > /dev/null
}

write_comment || echo "::warning::the comment was not written: give the job the permission \`pull-requests: write\`"
