# frozen_string_literal: true

require "fileutils"
require "rake"

# Type-checks the Ruby code of README.md, the guides and examples/ against sig/, by steep.
#
# Snippets use names that a reader must fill in (`urls`, `db`), and constants of gems without signatures. Complaints
# about these are dropped; all others are about Heddle's own API, or Ruby's.
class Examples
  LIBRARIES = %w[timeout bigdecimal date socket net-http uri open-uri].freeze
  SNIPPET = /^```ruby\n(.*?)^```/m
  COMPLAINT = /\A\S+:\d+:\d+: \[\w+\] /
  FILLED_IN = /\] (?:Type `::Object` does not have method|Cannot find the declaration of|Method `::Object#)/
  # Net::HTTP's own methods that its signatures lack, and an argument of the command line.
  KNOWN = /`exec`|`read_new`|\(::String \| nil\)/
  private_constant :LIBRARIES, :SNIPPET, :COMPLAINT, :FILLED_IN, :KNOWN

  # @param folder [String] where the code to check is written
  def initialize(folder)
    @folder = folder
  end

  # Writes the code, the signatures and a Steepfile to the folder.
  #
  # @return [void]
  def write(documents: FileList["README.md", "guides/*.md"], programs: FileList["examples/*.rb"])
    FileUtils.rm_rf(@folder)
    FileUtils.mkdir_p(File.join(@folder, "code"))
    FileUtils.cp_r("sig", @folder)
    FileUtils.cp(programs, File.join(@folder, "code"))
    documents.each do |path|
      File.read(path).scan(SNIPPET).flatten.each.with_index(1) do |code, number|
        File.write(File.join(@folder, "code", "#{File.basename(path, ".md")}_#{number}.rb"), code)
      end
    end
    libraries = LIBRARIES.map(&:inspect).join(", ")
    File.write(File.join(@folder, "Steepfile"),
      %(target :code do\n  signature "sig"\n  check "code"\n  library #{libraries}\nend\n))
  end

  # @param output [String] of <tt>steep check</tt>
  # @return [Array<String>] the complaints that count
  def self.complaints(output)
    output.lines(chomp: true).grep(COMPLAINT).grep_v(FILLED_IN).grep_v(KNOWN)
  end
end
