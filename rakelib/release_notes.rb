# frozen_string_literal: true

# The notes of a release: the section of its version in CHANGELOG.md.
class ReleaseNotes
  HEADING = /^## (\S+)(?: - (\S+))?$/
  private_constant :HEADING

  # @param changelog [String] the text of CHANGELOG.md
  # @param version [String]
  def initialize(changelog, version)
    @sections = changelog.split(/^(?=## )/).grep(HEADING)
    @version = version
  end

  # @return [String, nil] as YYYY-MM-DD; nil unless the newest section is this version's, and has one
  def date
    version, date = @sections.first.to_s.match(HEADING)&.captures
    date if version == @version && date.to_s.match?(/\A\d{4}-\d\d-\d\d\z/)
  end

  # @param source [String] where relative links lead: the address of the files of the repository
  # @return [String] in Markdown, without the heading
  # @raise [RuntimeError] if the changelog says nothing of this version
  def text(source)
    section = @sections.find { |text| text[HEADING, 1] == @version }.to_s
    body = section.lines.drop(1).join.strip
    raise "CHANGELOG.md says nothing of #{@version}" if body.empty?

    "#{body.gsub(/\]\((?!https?:|#)/, "](#{source}/")}\n"
  end
end
