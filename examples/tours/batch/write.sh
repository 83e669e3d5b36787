# Writes 40 texts into texts/, and prints a work file with an item for each and one for the total.
number=1
needs=
echo 'items:'
while [ "$number" -le 40 ]; do
    name=$(printf '%02d' "$number")
    seq 1 "$number" > "texts/$name.txt"
    echo "  - {id: text-$name, agent_id: agent-1, agent_name: Counter, description: Count the words of texts/$name.txt,"
    echo "     input_files: [texts/$name.txt], output_files: [counts/$name.txt], constraints: {max_files: 1}}"
    needs="$needs${needs:+, }text-$name"
    number=$((number + 1))
done
echo "  - {id: total, agent_id: agent-2, agent_name: Summer, description: Add up the counts, dependencies: [$needs]}"
