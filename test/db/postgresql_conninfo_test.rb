# frozen_string_literal: true

require "test_helper"
require "support/stream_helpers"
require "heddle/db/postgresql"
require "tempfile"
require "tmpdir"

# What connection strings, service files, the environment and password files stand for. libpq, by the pg gem, is the
# measure.
class PostgreSQLConninfoTest < Minitest::Test
  DB = Heddle::DB
  Conninfo = DB::PostgreSQL.const_get(:Conninfo)
  Settings = DB::PostgreSQL.const_get(:Settings)

  TEXTS = [
    "postgresql://", "postgres://host", "postgresql://host/", "postgresql://host:1234/base",
    "postgresql://user@host", "postgresql://user:pass@host/base", "postgresql://user:@host/base",
    "postgresql://us%40er:p%3Aa%2Fs%3Fs%23@host/b%20ase", "postgresql://a+b:c+d@host/e+f?application_name=g+h",
    "postgresql://[::1]:7/base", "postgresql://[::1]/base", "postgresql://[2001:db8::1]",
    "postgresql://one:1,two:2,three/base", "postgresql://one,two:2/base", "postgresql://one:1,[::1]:2,%2Ftmp:3/base",
    "postgresql://%2Fvar%2Frun%2Fpostgresql/base", "postgresql:///base?host=/tmp&port=6", "postgresql:///base",
    "postgresql://host/base?user=u&password=p%26w&sslmode=require&connect_timeout=10",
    "postgresql://user@/base", "postgresql://host?application_name=x", "postgresql://host/base?options=-c%20geqo%3Doff",
    "postgresql://host:/base", "postgresql://us?er:pa#ss?@host/base",
    "postgresql://user:a=b&c@host?application_name=#x",
    "host=h", "host=h port=1 dbname=d user=u password=p", "host = h  port =1 dbname= d", "password='a b'",
    "password='it\\'s' user=u", "password=it\\'s user=u", "password=it's user=u", "password='back\\\\slash'",
    "password=back\\\\slash", "password=a\\ b user=u", "dbname='' user=u", "user='' password='x=y z'", "password=x=y",
    " host=h ", "host=h\tport=1\nuser=u", "host=one,two port=1,2", "hostaddr=127.0.0.1 host=name",
    "password=\u00e4\u20ac user=u"
  ].freeze

  NAMES = {"dbname" => :database, "ssl" => :tls}.freeze

  # @return [Hash{Symbol => String}, :refused] as libpq reads it
  def by_libpq(text)
    pairs = PG::Connection.conninfo_parse(text).filter_map do |option|
      value = option[:val]
      name = NAMES.fetch(option[:keyword]) { option[:keyword].to_sym }
      [name, value.force_encoding("UTF-8")] unless value.to_s.empty?
    end
    pairs.to_h
  rescue PG::Error
    :refused
  end

  def by_us(text)
    Conninfo.options(text)
  rescue ArgumentError => error
    # Not full_message, for which Ruby 4.0 parses this file each time.
    refute_match(/hush/, [error, error.cause].compact.map(&:message).join(" "))
    :refused
  end

  def test_as_libpq
    require_pg
    TEXTS.each { |text| assert_equal by_libpq(text), by_us(text), text }
  end

  # Pieces in any order: what both take, both read alike, and no other exception comes out.
  def test_as_libpq_for_random_strings
    require_pg
    random = Random.new(7)
    pieces = ["postgresql://", "postgres://",
      "user", ":", "@", "/", "?", "&", "=", ",", "host", "[::1]", "%41", "%2F", "%",
      "host=", "user=", "dbname=", "password=", "port=", "5", "'", "\\", " ", "a b", "\u00e4", "#", "+"]
    both = 0
    4000.times do
      start = [["postgresql://"], ["host=x "], []].sample(random: random)
      text = (start + Array.new(random.rand(1..9)) { pieces.sample(random: random) }).join
      next if text.match?(/\Apostgres.*\s/m) # some versions drop blanks at the ends of parts

      theirs, ours = by_libpq(text), by_us(text)
      next if theirs == :refused || ours == :refused

      [theirs, ours].each { |parts| parts.delete(:port) if parts[:port]&.delete(",") == "" } # the default, for each
      both += 1
      assert_equal theirs, ours, text.inspect
    end
    assert_operator both, :>, 300
  end

  def require_pg
    require "pg"
  end

  # ---- what is refused

  def test_strings_that_cannot_be_read
    ["host=h 'x'", "host='h", "host", "=h", "host=h port", "host='a\\'"].each do |text|
      error = assert_raises(ArgumentError, text) { Conninfo.options(text) }
      assert_match(/host=… dbname=…/, error.message, text)
    end
    ["postgresql://me:a/b@host/base", "postgresql://me:12/hush@host/base", "postgresql://me:hush@h:x/base",
      "postgresql://me:hu%zzsh@host/b", "postgresql://[::1/base"].each do |text|
      error = assert_raises(ArgumentError, text) { DB.connect(text) }
      assert_match(/%2F.*%23/, error.message, text)
      refute_match(/hush|hu%zz/, error.full_message(highlight: false), text)
    end
  end

  # The password may be among the options behind the "?", too.
  def test_no_error_shows_a_password_of_the_options
    ["postgresql://h:x/b?password=hush", "postgresql://h/d@b?password=hush", "postgresql://h:hush:5/b?password=hush",
      "postgresql://h/b?x=@&password=hush@", "mysql://h /b?password=hush", "mysql://h/b?password=%zzhush",
      "mysql://h/b#?password=hush", "nothing?password=hush", "nothing://h/b?password=hush"].each do |text|
      error = assert_raises(ArgumentError, text) { DB.settings(text, {}) }
      refute_includes error.full_message(highlight: false), "hush", text
    end
    [["hush"], "a\0hush"].each do |value|
      error = assert_raises(ArgumentError) { DB.settings("postgresql://h/b", sslpassword: value) }
      refute_includes error.message, "hush"
    end
  end

  def test_unknown_and_wrong_options
    assert_match(/hue.*timeout/m, assert_raises(ArgumentError) { DB.connect("postgresql://h/b?hue=red") }.message)
    {port: [0, 70_000, "x", "1,y"], host: [7, "a\nb"], sslmode: ["never", 7], timeout: ["soon", -1],
     channel_binding: ["yes"], require_auth: ["gss", "md5,!password", "kerberos"], time_zone: [:mars],
     load_balance_hosts: ["yes"], sslnegotiation: ["late"], user: [7], password: [7, ["hush"]],
     parameters: [7, "x"], application_name: ["a\0b"], hostaddr: [7]}.each do |name, values|
      values.each do |value|
        error = assert_raises(ArgumentError, "#{name}: #{value.inspect}") do
          DB.connect("postgresql://h/b", name => value)
        end
        assert_includes error.message, "#{name}:"
        refute_includes error.full_message, "hush"
      end
    end
  end

  # ---- service files, the environment, password files

  def with_environment(**variables)
    names = ENV.keys.grep(/\APG/)
    before = ENV.to_h.slice(*names, *variables.keys.map(&:to_s))
    names.each { |name| ENV.delete(name) }
    variables.each { |name, value| ENV[name.to_s] = value }
    yield
  ensure
    variables.each_key { |name| ENV.delete(name.to_s) }
    ENV.update(before)
  end

  def in_folder(files, mode: 0o600)
    Dir.mktmpdir do |folder|
      files.each do |name, text|
        File.write("#{folder}/#{name}", text)
        File.chmod(mode, "#{folder}/#{name}")
      end
      yield folder
    end
  end

  def shown(settings)
    {servers: settings[:servers].map(&:to_s), **settings.slice(:user, :database, :sslmode, :application_name)}
  end

  def test_the_environment
    variables = {PGHOST: "one,two", PGPORT: "1,2", PGUSER: "u", PGPASSWORD: "p", PGDATABASE: "d", PGSSLMODE: "require",
                 PGAPPNAME: "app", PGCONNECT_TIMEOUT: "7", PGTARGETSESSIONATTRS: "primary"}
    with_environment(**variables) do
      settings = Settings.of("postgresql://", {})
      assert_equal({servers: %w[one:1 two:2], user: "u", database: "d", sslmode: :require, application_name: "app"},
        shown(settings))
      assert_equal [%w[p p], 7.0, :primary],
        [settings[:servers].map(&:password), settings[:connect_timeout], settings[:target_session_attrs]]
      settings = Settings.of("postgresql://me:mine@h:9/b", tls: false, application_name: "own")
      assert_equal({servers: %w[h:9], user: "me", database: "b", sslmode: :disable, application_name: "own"},
        shown(settings))
      assert_equal "mine", settings[:servers].first.password
    end
    with_environment(PGHOST: "h", PGCONNECT_TIMEOUT: "0") do
      assert_nil Settings.of("postgresql://", {})[:connect_timeout]
    end
    with_environment(PGHOSTADDR: "127.0.0.9") do
      assert_equal ["name:5432"], Settings.of("postgresql://name", {})[:servers].map(&:to_s)
      assert_equal ["127.0.0.9:5432"], Settings.of("postgresql://", {})[:servers].map(&:to_s)
    end
  end

  def test_defaults
    with_environment do
      settings = Settings.of("postgresql://h", {})
      user = Etc.getpwuid.name
      assert_equal [user, user, ["h:5432"]], [settings[:user], settings[:database], settings[:servers].map(&:to_s)]
    end
  end

  SERVICES = <<~TEXT
    # two services
    [first]
    host=one
    port=1
    dbname=base
    # a comment
    password = a b

    [second]
    host=two
    user=u2
  TEXT

  def test_a_service_file
    in_folder({"services" => SERVICES, "pg_service.conf" => "[third]\nhost=three\n"}) do |folder|
      with_environment(PGSERVICEFILE: "#{folder}/services", PGSYSCONFDIR: folder, PGUSER: "u", PGHOST: "env") do
        settings = Settings.of("postgresql://?service=first", {})
        assert_equal [["one:1"], "u", "base", "a b"],
          [*shown(settings).values_at(:servers, :user, :database), settings[:servers].first.password]
        assert_equal [["x:1"], "me"],
          shown(Settings.of("service=first", {host: "x", user: "me"})).values_at(:servers, :user)
        ENV["PGSERVICE"] = "second"
        assert_equal [["two:5432"], "u2"], shown(Settings.of("postgresql://", {})).values_at(:servers, :user)
        assert_equal ["three:5432"], shown(Settings.of("postgresql://", {service: "third"}))[:servers]
        error = assert_raises(ArgumentError) { Settings.of("postgresql://", {service: "fourth"}) }
        assert_match(/no service "fourth".*services/, error.message)
      end
    end
  ensure
    ENV.delete("PGSERVICE")
  end

  PASSWORDS = <<~'TEXT'
    # host:port:database:user:password
    h:1:b:u:first
    h:*:b:u:sec\:ond\\
    localhost:5432:*:u:of a socket
    bad line
    *:*:*:last:everywhere:behind
  TEXT

  def test_a_password_file
    in_folder({"pgpass" => PASSWORDS}) do |folder|
      with_environment(PGPASSFILE: "#{folder}/pgpass") do
        of = ->(url, **options) { Settings.of(url, options)[:servers].map(&:password) }
        assert_equal ["first"], of.call("postgresql://u@h:1/b")
        assert_equal ["sec:ond\\"], of.call("postgresql://u@h:2/b")
        assert_equal ["first", "sec:ond\\", nil], of.call("postgresql://u@h:1,h:2,other:1/b")
        assert_equal ["of a socket"], of.call("host=/tmp user=u dbname=x")
        assert_equal ["everywhere"], of.call("postgresql://last@anywhere/x")
        assert_equal [nil], of.call("postgresql://nobody@h:1/b")
        assert_equal ["own"], of.call("postgresql://u:own@h:1/b")
      end
    end
  end

  def test_a_password_file_that_others_may_read_is_not_used
    in_folder({"pgpass" => PASSWORDS}, mode: 0o644) do |folder|
      with_environment do
        password = nil
        _, said = capture_io do
          settings = Settings.of("postgresql://u@h:1/b", {passfile: "#{folder}/pgpass"})
          password = settings[:servers].first.password
        end
        assert_nil password
        assert_match(/pgpass was not used.*chmod 0600/, said)
        refute_includes said, "first"
      end
    end
    with_environment { assert_nil Settings.of("postgresql://u@h/b", {passfile: "/no/such"})[:servers].first.password }
  end

  def test_hosts_and_addresses
    with_environment do
      assert_equal ["name:5432 (127.0.0.9)"], shown(Settings.of("host=name hostaddr=127.0.0.9", {}))[:servers]
      error = assert_raises(ArgumentError) { Settings.of("host=a,b hostaddr=127.0.0.9", {}) }
      assert_match(/1 addresses for 2 hosts/, error.message)
    end
  end
end
