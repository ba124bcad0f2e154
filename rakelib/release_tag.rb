# frozen_string_literal: true

require "open3"
require "tempfile"

# Checks the tag that a release is made from: that it is of this commit and this day, and who signed it.
class ReleaseTag
  # Who may sign, in the format that ssh-keygen(1) describes under ALLOWED SIGNERS.
  SIGNERS = ".github/allowed_signers"
  # Another kind of signature would be checked against the keys of whoever runs this.
  ONLY_SSH = %w[-c gpg.program=false -c gpg.x509.program=false].freeze
  private_constant :ONLY_SSH

  # @param root [String]
  # @param name [String]
  # @param date [String, nil] that of the changelog
  # @param trusted [String] a commit that contains the tag's, and whose list of signers counts. In the workflow this is
  #   main: a tagged commit could name its own signers. It could also bring a workflow that does not check this, so only
  #   the repository's rule for tags and the environment `release` keep out who may push commits
  def initialize(root, name, date, trusted: "HEAD")
    @root = root
    @name = name
    @date = date
    @trusted = trusted
  end

  # @return [Array<String>] what is wrong, one line each
  def problems
    case git("cat-file", "-t", "refs/tags/#{@name}")
    when "tag" then [*commit, *merged, *date, *signature]
    when nil then ["git: there is no tag #{@name}: `git tag --sign #{@name}`"]
    else ["git: #{@name} is a tag without a signature: `git tag --sign --force #{@name}`"]
    end
  end

  # @return [Array<String>] the lines of the list of signers
  def signers
    git("show", "#{@trusted}:#{SIGNERS}").to_s.lines.grep_v(/\A\s*(?:#|$)/)
  end

  private

  def commit
    tagged, here = git("rev-parse", "#{@name}^{commit}"), git("rev-parse", "HEAD")
    ["git: #{@name} is commit #{tagged[0, 12]}, and this is #{here[0, 12]}"] unless tagged == here
  end

  def merged
    return if git("merge-base", "--is-ancestor", "#{@name}^{commit}", @trusted)

    ["git: #{@trusted} does not contain #{@name}: merge the commit, then tag it"]
  end

  # As it was where the tag was made.
  def date
    tagged = git("for-each-ref", "--format=%(taggerdate:short)", "refs/tags/#{@name}")
    ["git: #{@name} was made on #{tagged}; the date in CHANGELOG.md is #{@date || "missing"}"] unless tagged == @date
  end

  def signature
    said, status = Tempfile.create("signers") do |file|
      file.tap { file.write(signers.join) }.close
      Open3.capture2e("git", *ONLY_SSH, "-c", "gpg.ssh.allowedSignersFile=#{file.path}", "verify-tag", @name,
        chdir: @root)
    end
    return if status.success?

    ["git: #{@name} is not signed by one of #{@trusted}:#{SIGNERS} (#{said.lines.last.to_s.strip})"]
  end

  # @return [String, nil] what it prints, if it succeeds
  def git(*arguments)
    said, status = Open3.capture2("git", *arguments, chdir: @root, err: File::NULL)
    said.chomp if status.success?
  end
end
