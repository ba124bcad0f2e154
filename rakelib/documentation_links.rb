# frozen_string_literal: true

# Links between the documents, which are written for the repository, become links between the pages that YARD makes of
# them. Files that have no page are in the repository, where the gemspec says.
class DocumentationLinks
  LINK = /href="(?!https?:|file\.|#)([^"#]+)(?:#([^"]*))?"/

  # @param folder [String] of the pages
  def initialize(folder)
    @folder = folder
    @source = Gem::Specification.load("heddle.gemspec").metadata.fetch("source_code_uri")
  end

  # @return [void]
  # @raise [RuntimeError] for a link to a heading that there is not
  def relink
    pages = Dir["#{@folder}/{index,file.*}.html"]
    pages.each do |page|
      text = File.read(page)
      File.write(page, text.gsub(LINK) { %(href="#{target($1, $2) || "#{$1}#{"##{$2}" if $2}"}") })
    end
  end

  private

  # @return [String, nil] nil: it is a page of YARD's own
  def target(path, anchor)
    return if File.exist?(File.join(@folder, path))

    path = path.gsub(%r{\A(?:\.\./)+}, "")
    page = "file.#{File.basename(path, ".*")}.html"
    return "#{@source}/#{path}" unless documents.include?(path) && File.exist?(File.join(@folder, page))

    anchor ? "#{page}##{heading(page, anchor)}" : page
  end

  # Paths in a folder are written without it by others of that folder.
  def documents
    @documents ||= Dir["*.md", "{guides,doc}/**/*.md"].flat_map do |path|
      [path, path.delete_prefix("doc/"), File.basename(path)]
    end
  end

  # Of the letters and digits alone both are the same.
  def heading(page, anchor)
    ids = File.read(File.join(@folder, page)).scan(/<h\d id="([^"]+)"/).flatten
    ids.find { |id| bare(id) == bare(anchor) } || raise("#{page} has no heading ##{anchor}")
  end

  def bare(text)
    text.downcase.delete("^a-z0-9")
  end
end
