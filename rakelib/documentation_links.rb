# frozen_string_literal: true

require_relative "repository"

# Turns the documents' links, which are written for the repository, into links between the pages that YARD makes. A link
# to a file without a page leads to the repository that the gemspec names.
class DocumentationLinks
  LINK = /href="(?!https?:|file\.|#)([^"#]+)(?:#([^"]*))?"/

  # @param folder [String] of the pages
  def initialize(folder)
    @folder = folder
    @files = Repository.files(Gem::Specification.load("heddle.gemspec"))
  end

  # @return [void]
  # @raise [RuntimeError] for a link to a missing heading
  def relink
    pages = Dir["#{@folder}/{index,file.*}.html"]
    pages.each do |page|
      text = File.read(page)
      File.write(page, text.gsub(LINK) { %(href="#{target($1, $2) || "#{$1}#{"##{$2}" if $2}"}") })
    end
  end

  private

  # @return [String, nil] nil for one of YARD's own pages
  def target(path, anchor)
    return if File.exist?(File.join(@folder, path))

    path = path.gsub(%r{\A(?:\.\./)+}, "")
    page = "file.#{File.basename(path, ".*")}.html"
    return "#{@files}/#{path}" unless documents.include?(path) && File.exist?(File.join(@folder, page))

    anchor ? "#{page}##{heading(page, anchor)}" : page
  end

  # Files of a folder link to each other without the folder's name.
  def documents
    @documents ||= Dir["*.md", "{guides,doc}/**/*.md"].flat_map do |path|
      [path, path.delete_prefix("doc/"), File.basename(path)]
    end
  end

  # The two differ only in characters that are not letters or digits.
  def heading(page, anchor)
    ids = File.read(File.join(@folder, page)).scan(/<h\d id="([^"]+)"/).flatten
    ids.find { |id| bare(id) == bare(anchor) } || raise("#{page} has no heading ##{anchor}")
  end

  def bare(text)
    text.downcase.delete("^a-z0-9")
  end
end
